"""The training of a visit by the user's code."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.visit import Fit, Visit
from offbeat_core.model_file import read_down, read_model
from offbeat_core.user_code_errors import user_code


def train(visit: Visit, model: Path, fit: Fit, outbox: Outbox) -> tuple[Any, float]:
    """Return the unchecked result of the user's ``fit``, and how many seconds it took."""
    arrays = read_model(model, visit.length)
    offset = gradient_offset(visit, model, outbox)
    if offset is not None:
        visit = replace(visit, offset=by_name(offset, arrays))
    visit = replace(visit, state=outbox.state())
    began = time.perf_counter()
    with user_code(f"visit {visit.number}: the client's fit failed"):
        result = fit(arrays, visit)
    return result, time.perf_counter() - began


def gradient_offset(visit: Visit, model: Path, outbox: Outbox) -> NDArray[np.float32] | None:
    """Return the offset of each local gradient, a new array ``(d,)``, if it has one.

    The offset is the vector beside the model minus the client's c_i. A client without c_i uses 0; the server recognises
    a lost c_i by ``since``.
    """
    if not visit.corrects_gradients:
        return None
    down = read_down(model, visit.length)
    memory = outbox.memory(visit.since, visit.length)
    return down if memory is None else down - memory


def by_name(vector: NDArray[np.float32], model: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return views of a vector ``(d,)`` by name, in the shapes of a model."""
    parts: dict[str, NDArray[np.float32]] = {}
    begin = 0
    for name, array in model.items():
        parts[name] = vector[begin : begin + array.size].reshape(array.shape)
        begin += array.size
    return parts
