"""A visit's work: what the user's code trains becomes an update in the outbox."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from offbeat.errors import OffbeatError
from offbeat.service.client.contract import Fit, Visit
from offbeat.service.client.model_file import read_down, read_model
from offbeat.service.client.outbox import Outbox, Pending
from offbeat.service.client.update import by_name, check_fitted, make_update, result_vector, sha256
from offbeat.training.sending import control_variate, has_memory
from offbeat.user_code_errors import failure


def train(visit: Visit, model: Path, fit: Fit, outbox: Outbox) -> tuple[Any, float]:
    """Return whatever the user's ``fit`` returns, and how many seconds it took.

    Args:
        visit: The visit.
        model: The file with the model to start from.
        fit: The user's.
        outbox: Where the client's memory is.

    Raises:
        OffbeatError: It fails, or the file is broken.
    """
    tensors = read_model(model, visit.length)
    offset = gradient_offset(visit, model, outbox)
    if offset is not None:
        visit = replace(visit, offset=by_name(offset, tensors))
    began = time.perf_counter()
    try:
        result = fit(tensors, visit)
    except OffbeatError:
        raise
    except Exception as error:
        raise failure(f"visit {visit.number}: the client's fit failed", error) from error
    return result, time.perf_counter() - began


def gradient_offset(visit: Visit, model: Path, outbox: Outbox) -> Tensor | None:
    """Return what is added to each local gradient, ``(d,)``: what came beside the model, minus the client's c_i.

    A client without c_i has 0; of one that was lost the server hears by ``since``.

    Args:
        visit: The visit.
        model: The file with the model.
        outbox: Where c_i is.

    Returns:
        A tensor of its own; None if nothing is added.

    Raises:
        OffbeatError: The file is broken.
    """
    if not visit.corrects_gradients:
        return None
    down = read_down(model, visit.length)
    memory = outbox.memory(visit.since, visit.length)
    return down if memory is None else down - memory


def put_update(visit: Visit, model: Path, result: Any, seconds: float, outbox: Outbox) -> Pending:
    """Make the update and put it into the outbox.

    Args:
        visit: The visit.
        model: The file with the model that training started from.
        result: What ``fit`` returned.
        seconds: How long it took.
        outbox: Where the update goes, and the memory comes from.

    Raises:
        OffbeatError: The result is not what it should be, or not finite.
    """
    # Read anew, since training may have changed the tensors that it was given.
    start = read_model(model, visit.length)
    fitted = check_fitted(result, start, visit)
    vector = result_vector(visit.payload, start, fitted.model)
    is_corrected = visit.corrects_gradients
    has = has_memory(visit.payload, visit.plan, corrects_gradients=is_corrected)
    memory = outbox.memory(visit.since, visit.length) if has else None
    # A difference to nothing is the whole update, and has to say so; so has one that no c_i has corrected.
    since = None if memory is None and (is_corrected or visit.payload == "difference") else visit.since
    outcome = make_update(vector, memory, visit)
    offset = gradient_offset(visit, model, outbox)  # anew, too
    if offset is not None:
        plan = visit.plan.prefix(fitted.steps or visit.plan.steps)
        outcome = replace(outcome, memory=control_variate(vector, offset, plan))

    def announcement(body: Path) -> dict[str, Any]:
        return {
            "version": visit.version,
            "bytes": body.stat().st_size,
            "sha256": sha256(body),
            "examples": fitted.examples,
            "steps": fitted.steps,
            "normaliser": fitted.normaliser,
            "since": since,
            "step_seconds": seconds / (fitted.steps or visit.plan.steps),
            "upload_seconds": outbox.kept().upload_seconds,
            # Servers of protocol 1.1 do not know it.
            **({"loss": fitted.loss} if visit.needs_loss else {}),
        }

    return outbox.put(visit, outcome.write, outcome.memory, announcement)
