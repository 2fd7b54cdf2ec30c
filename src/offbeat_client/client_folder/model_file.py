"""The downloaded model, and the vector that comes beside it."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from offbeat_client.errors import OffbeatError

DOWN = ".down"
"""The vector beside the model; parameters never have such a name, since module names are not empty."""


def read_model(path: Path, length: int) -> dict[str, NDArray[np.float32]]:
    """Return the model's d parameters by name, copied.

    Their order is that in which they make up the vector.

    Raises:
        OffbeatError: The file is not such a model. It is removed, so that it is downloaded again.
    """
    with _open(path) as file:
        layout: list[tuple[str, list[int]]] = json.loads((file.metadata() or {})["layout"])
        model: dict[str, NDArray[np.float32]] = {name: file.get_tensor(name) for name, _ in layout}
        for name, shape in layout:
            if list(model[name].shape) != shape or model[name].dtype != np.float32:
                raise ValueError(f"{name} is not float32 of shape {tuple(shape)}")
        if sum(array.size for array in model.values()) != length:
            raise ValueError(f"it does not have {length} parameters")
    return model


def read_down(path: Path, length: int) -> NDArray[np.float32]:
    """Return the vector beside the model, float32 ``(d,)``, copied.

    Raises:
        OffbeatError: The file does not hold it; it is removed, so that it is downloaded again.
    """
    with _open(path) as file:
        down: NDArray[np.float32] = file.get_tensor(DOWN)
        if down.shape != (length,) or down.dtype != np.float32:
            raise ValueError(f"{DOWN} is not float32 of shape {(length,)}")
    return down


@contextmanager
def _open(path: Path) -> Generator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:
        path.unlink(missing_ok=True)
        raise OffbeatError(f"the downloaded model {path} is broken ({error}): join again") from None
