"""The evaluation of a version by the user's code."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbeat_client.http.connection import Connection
from offbeat_client.http.model_download import download
from offbeat_client.visit import Evaluate
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import ServiceError, UnreachableError
from offbeat_core.messages import EvaluationMessage, EvaluationReceipt, EvaluationResult
from offbeat_core.model_file import read_model
from offbeat_core.number_checks import check_count, is_number, plain_number
from offbeat_core.user_code_errors import user_code
from pydantic import ValidationError

_log = logging.getLogger(__name__)


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
