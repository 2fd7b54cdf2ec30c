"""From a training result to the update of a visit, in the outbox."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_client.client_folder.outbox import Outbox, Pending
from offbeat_client.training import by_name, gradient_offset
from offbeat_client.visit import Fitted, Visit
from offbeat_core.compression.compressor import check_finite
from offbeat_core.digests import digits_of_file, has_blake3
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Payload, normaliser
from offbeat_core.model_file import read_model
from offbeat_core.number_checks import (
    LARGEST_COUNT,
    LARGEST_FLOAT32,
    check_not_negative,
    is_number,
    plain_number,
    short,
)
from offbeat_core.randomness import Purpose, integer
from offbeat_core.sent_update import Sent, control_variate, has_memory, send
from safetensors.numpy import save_file


def check_fitted(result: Any, start: Mapping[str, NDArray[np.float32]], visit: Visit) -> Fitted:
    """Return the checked result of ``fit``, with steps and normaliser filled in."""
    if isinstance(result, tuple) and len(result) == 2:
        result = Fitted(*result)
    model: Any = result.model if isinstance(result, Fitted) else None
    if not isinstance(result, Fitted) or not isinstance(model, Mapping):
        raise OffbeatError(f"fit must return (model by name, examples) or a Fitted, got {type(result).__name__}")
    for name, first in start.items():
        last: Any = model.get(name)
        shape = getattr(last, "shape", None)
        if shape != first.shape:
            got = type(last).__name__ if shape is None else tuple(shape)
            raise OffbeatError(
                f"the model that fit returned needs {name} as an array of shape {first.shape}, got {got}"
            )
        try:
            end: NDArray[Any] = np.asanyarray(last)
            if end.dtype.kind in "cmMSU" or np.ma.is_masked(end):  # which float32 would change
                raise TypeError("it has masked values" if np.ma.is_masked(end) else f"its values are {end.dtype}")
            with np.errstate(over="ignore"):
                np.asarray(end, np.float32)
        except (RuntimeError, TypeError, ValueError) as error:  # such as a tensor on a GPU
            raise OffbeatError(f"{name} of the model that fit returned is not an array of numbers: {error}") from None
    steps = visit.plan.steps if result.steps is None else result.steps
    counts = {"examples": plain_number(result.examples), "steps": plain_number(steps)}
    for (what, number), most in zip(counts.items(), (LARGEST_COUNT, visit.plan.steps), strict=True):
        if type(number) is not int or not 1 <= number <= most:
            given = result.examples if what == "examples" else steps
            raise OffbeatError(f"the {what} that fit returned must be a whole number in 1 … {most}, got {short(given)}")
    examples, steps = counts.values()
    total = normaliser(visit.plan.prefix(steps))
    if result.normaliser is not None:
        try:
            total = check_not_negative("the normaliser that fit returned", result.normaliser)
        except ValueError as error:
            raise OffbeatError(str(error)) from None
    loss = plain_number(result.loss)
    if visit.needs_loss and not (is_number(loss) and abs(loss) <= LARGEST_FLOAT32):
        raise OffbeatError(
            f"this run needs the mean training loss of each visit: return Fitted(…, loss=…) with a finite number, "
            f"got {short(result.loss)}"
        )
    state: Any = result.state
    if not isinstance(state, bytes | None):
        raise OffbeatError(f"the state that fit returned must be bytes, got {type(state).__name__}")
    return Fitted(model, examples, steps, float(total), loss, state)


def result_vector(
    payload: Payload, start: Mapping[str, NDArray[np.float32]], end: Mapping[str, Any]
) -> NDArray[np.float32]:
    """Return the update's vector ``(d,)``, in the order of ``start``.

    The vector is start − end, or for ``params`` the end. A value beyond float32 becomes infinite, which ``make_update``
    refuses.
    """
    vector = np.empty(sum(first.size for first in start.values()), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for name, part in by_name(vector, start).items():
            last = np.asarray(end[name], np.float32)
            if payload == "params":
                part[...] = last
            else:
                np.subtract(start[name], last, out=part)
    return vector


def make_update(vector: NDArray[np.float32], memory: NDArray[np.float32] | None, visit: Visit) -> Sent:
    """Return the update of a visit, bit for bit the simulator's; see ``send``.

    The ownership of ``vector``, from ``result_vector``, passes to the update.
    """
    seed = integer(visit.seed, Purpose.COMPRESSION, visit.client, visit.number)
    try:
        sent = send(visit.payload, vector, memory, visit.plan, seed)
        check_finite("the update", sent.vector)
    except ValueError as error:
        raise OffbeatError(
            f"training diverged: visit {visit.number}, from version {visit.version}: {error}; "
            "lower the plan's lr or set its clip_norm"
        ) from None
    return sent


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
            "model_sha256": visit.model_sha256,
            "bytes": body.stat().st_size,
            **_digest(visit, body),
            "examples": fitted.examples,
            "steps": steps,
            "normaliser": fitted.normaliser,
            "since": since,
            "step_seconds": seconds / steps,
            "upload_seconds": outbox.kept().upload_seconds,
            **({"loss": fitted.loss} if visit.needs_loss else {}),
        }

    return outbox.put(visit, lambda path: write_body(update, path), update.memory, announcement, fitted.state)


def _digest(visit: Visit, body: Path) -> dict[str, str]:
    kind = visit.digest if has_blake3() else "sha256"
    return {kind: digits_of_file(body, kind)}


def write_body(update: Sent, path: Path) -> None:
    """Write the body of an update: a safetensors file, or the compressor's bytes."""
    if update.encoded is None:
        save_file({"update": update.vector}, path)
    else:
        path.write_bytes(update.encoded.to_bytes())
