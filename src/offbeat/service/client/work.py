"""A visit's work: what the user's code trains becomes an update in the outbox."""

import time
from pathlib import Path
from typing import Any

from offbeat.errors import OffbeatError
from offbeat.service.client.contract import Fit, Visit
from offbeat.service.client.model_file import read_model
from offbeat.service.client.outbox import Outbox, Pending
from offbeat.service.client.update import check_fitted, make_update, result_vector, sha256
from offbeat.training.sending import has_memory
from offbeat.user_code_errors import failure


def train(visit: Visit, model: Path, fit: Fit) -> tuple[Any, float]:
    """Return whatever the user's ``fit`` returns, and how many seconds it took.

    Args:
        visit: The visit.
        model: The file with the model to start from.
        fit: The user's.

    Raises:
        OffbeatError: It fails, or the file is broken.
    """
    tensors = read_model(model, visit.length)
    began = time.perf_counter()
    try:
        result = fit(tensors, visit)
    except OffbeatError:
        raise
    except Exception as error:
        raise failure(f"visit {visit.number}: the client's fit failed", error) from error
    return result, time.perf_counter() - began


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
    memory = outbox.memory(visit.since, visit.length) if has_memory(visit.payload, visit.plan) else None
    outcome = make_update(result_vector(visit.payload, start, fitted.model), memory, visit)
    # A difference to nothing is the whole update, and has to say so.
    since = None if visit.payload == "difference" and memory is None else visit.since

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
        }

    return outbox.put(visit, outcome.write, outcome.memory, announcement)
