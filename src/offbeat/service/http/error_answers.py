"""The answers to refusals and errors."""

import logging
from collections.abc import Callable, Mapping

from fastapi.responses import JSONResponse, Response
from offbeat_core.serving.console_log import event
from starlette.requests import ClientDisconnect

from offbeat.service.refusal import Refusal


def refusal_answer(count: Callable[[str], None], refusal: Refusal) -> Response:
    """Return the answer to a refused request, and count and log the refusal."""
    count(refusal.kind)
    event("refused", logging.WARNING, kind=refusal.kind, detail=refusal.detail)
    return JSONResponse(refusal.problem(), refusal.status, refusal.headers, media_type="application/problem+json")


def error_answer(
    disk_refusal: Callable[[OSError], Refusal],
    count: Callable[[str], None],
    error: Exception,
    path_parameters: Mapping[str, str],
) -> Response:
    """Return the answer to a route's error, as in ``docs/protocol.md``; raise a bug."""
    match error:
        case Refusal():
            return refusal_answer(count, error)
        case FileNotFoundError() if "version" in path_parameters:
            problem = f"version {path_parameters['version']} is not kept: check in for new work"
            return refusal_answer(count, Refusal("no-such-version", problem))
        case OSError() if error.filename is not None:  # the disk's
            return refusal_answer(count, disk_refusal(error))
        case ClientDisconnect():
            return Response(status_code=499)  # nobody receives it
        case _:
            raise error
