"""Training, evaluation and the probe of speed, by the user's code."""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Connection
from offbeat_client.http.model_download import download
from offbeat_client.visit import Evaluate, Fit, Visit, visit_of
from offbeat_core.compression import uncompressed_bytes
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.http.service_errors import ServiceError, UnreachableError
from offbeat_core.messages import Answer, EvaluationMessage, EvaluationReceipt, EvaluationResult, Probe, Speed
from offbeat_core.model_file import read_down, read_model
from offbeat_core.number_checks import check_count, is_number, plain_number
from offbeat_core.user_code_errors import user_code
from pydantic import ValidationError

_log = logging.getLogger(__name__)


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
    """Return the offset of each local gradient, ``(d,)``; None if it has none.

    offset = c − c_i: the server's control variate, which comes with the model, minus the client's own. A client without
    c_i uses 0; the visit's ``since`` then tells the server that c_i is lost.
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


def probe(connection: Connection, folder: Path, client: int, fit: Fit, outbox: Outbox) -> None:
    """Measure and report the client's speed if asked; a failed request ends it."""
    try:
        wanted = connection.ask("GET", "/v1/probe", Probe)
        if wanted.probe is None or wanted.upload_bytes < 1:
            return
        visit = visit_of(wanted.probe, client)
        model = download(connection, visit, folder)
        # The first call may load and compile.
        step_seconds = min(train(visit, model, fit, outbox)[1] for _ in range(2))
        upload_seconds = _upload_seconds(connection, visit.length, wanted.upload_bytes)
        speed = Speed(step_seconds=step_seconds, upload_seconds=upload_seconds)
        connection.ask("POST", "/v1/probe", Answer, speed)
    except (ServiceError, UnreachableError, GiveUpError) as error:
        # The cause shows when the client checks in.
        _log.info("without a probe: %s", error)
    else:
        _log.info("probe: %.3g s a step, %.3g s for a whole update", step_seconds, upload_seconds)


def _upload_seconds(connection: Connection, length: int, size: int) -> float:
    # A round trip, and the time for the bytes at the rate measured with ``size`` of them.
    round_trip, seconds = (_put_seconds(connection, each) for each in (0, size))
    return round_trip + max(seconds - round_trip, 0.0) * uncompressed_bytes(length) / size


def _put_seconds(connection: Connection, size: int) -> float:
    began = time.perf_counter()
    connection.send("PUT", "/v1/probe", content=[bytes(size)], headers={"Content-Length": str(size)})
    return time.perf_counter() - began


def evaluate(connection: Connection, folder: Path, asked: EvaluationMessage, measure: Evaluate) -> str | None:
    """Measure a version and send the result; return the receipt's audit head.

    If that fails, log it and give up. So an evaluation never keeps a client from training.

    Raises:
        UnreachableError: The server cannot be reached.
    """
    path = f"/v1/evaluations/{asked.version}"
    try:
        result = _measure(asked, read_model(download(connection, asked, folder), asked.length), measure)
        receipt = connection.ask("POST", path, EvaluationReceipt, result)
    except UnreachableError:
        raise
    except OffbeatError as error:
        _log.warning("evaluation of version %d: %s", asked.version, error)
        if not isinstance(error, ServiceError) or error.kind != "no-such-evaluation":
            with suppress(OffbeatError):  # then the server waits no longer than for any client
                connection.send("POST", f"{path}/give-up")
    else:
        _log.info("evaluation of version %d: %s", asked.version, "counted" if receipt.counted else "too late to count")
        return receipt.audit_head
    return None


def _measure(asked: EvaluationMessage, model: Any, measure: Evaluate) -> EvaluationResult:
    with user_code("the client's evaluate failed"):
        result: Any = measure(model)
    match result:
        case (Mapping() as metrics, examples):
            pass
        case _:
            raise OffbeatError(f"the client's evaluate must return (metrics, examples), got a {type(result).__name__}")
    try:
        examples = check_count("examples", examples)
        numbers = {name: float(_number(name, value)) for name, value in metrics.items()}
        return EvaluationResult(model_sha256=asked.model_sha256, examples=examples, metrics=numbers)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise OffbeatError(f"the client's evaluate returned a wrong value: {where}: {first['msg']}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise OffbeatError(f"the client's evaluate returned a wrong value: {error}") from None


def _number(name: str, value: Any) -> Any:
    number = plain_number(value)
    if not is_number(number):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return number
