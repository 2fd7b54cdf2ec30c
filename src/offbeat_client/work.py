"""The work of a visit: training by the user's code, and the update for it."""

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from offbeat_client.client_folder.model_file import read_down, read_model
from offbeat_client.client_folder.outbox import Outbox, Pending
from offbeat_client.sending import Sent, control_variate, has_memory
from offbeat_client.update import by_name, check_fitted, make_update, result_vector
from offbeat_client.user_code_errors import user_code
from offbeat_client.visit import Fit, Visit


def train(visit: Visit, model: Path, fit: Fit, outbox: Outbox) -> tuple[Any, float]:
    """Return the unchecked result of the user's ``fit``, and how many seconds it took."""
    arrays = read_model(model, visit.length)
    offset = gradient_offset(visit, model, outbox)
    if offset is not None:
        visit = replace(visit, offset=by_name(offset, arrays))
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


def put_update(visit: Visit, model: Path, result: Any, seconds: float, outbox: Outbox) -> Pending:
    """Make the update from the result of ``fit``, and put it into the outbox."""
    # Read again, since training may have changed the arrays in place.
    start = read_model(model, visit.length)
    fitted = check_fitted(result, start, visit)
    steps = fitted.steps or visit.plan.steps
    vector = result_vector(visit.payload, start, fitted.model)
    is_corrected = visit.corrects_gradients
    remembers = has_memory(visit.payload, visit.plan, corrects_gradients=is_corrected)
    memory = outbox.memory(visit.since, visit.length) if remembers else None
    # The server must know of a difference to nothing, and of an update that no c_i has corrected.
    since = None if memory is None and (is_corrected or visit.payload == "difference") else visit.since
    update = make_update(vector, memory, visit)
    offset = gradient_offset(visit, model, outbox)  # read again, too
    if offset is not None:
        update = update._replace(memory=control_variate(vector, offset, visit.plan.prefix(steps)))

    def announcement(body: Path) -> dict[str, Any]:
        return {
            "version": visit.version,
            "bytes": body.stat().st_size,
            "sha256": sha256(body),
            "examples": fitted.examples,
            "steps": steps,
            "normaliser": fitted.normaliser,
            "since": since,
            "step_seconds": seconds / steps,
            "upload_seconds": outbox.kept().upload_seconds,
            # Servers of protocol 1.1 refuse the key.
            **({"loss": fitted.loss} if visit.needs_loss else {}),
        }

    return outbox.put(visit, lambda path: write_body(update, path), update.memory, announcement)


def write_body(update: Sent, path: Path) -> None:
    """Write the body of an update: a safetensors file, or the compressor's bytes."""
    if update.encoded is None:
        save_file({"update": update.vector}, path)
    else:
        path.write_bytes(update.encoded.to_bytes())


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
