"""Answers to requests that are refused or fail."""

import logging
from functools import partial

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from offbeat_core.serving.console_log import event
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from offbeat.service.engine.service import Service
from offbeat.service.refusal import Refusal

_KINDS = {404: "not-found", 405: "method-not-allowed"}


def refusal_answer(service: Service, refusal: Refusal) -> Response:
    """Return the answer to a refused request, and count and log the refusal."""
    service.metrics.refusals.labels(refusal.kind).inc()
    service.accounts.audit.count("refusals", refusal.kind)
    event("refused", logging.WARNING, kind=refusal.kind, detail=refusal.detail)
    return JSONResponse(refusal.problem(), refusal.status, refusal.headers, media_type="application/problem+json")


def add_error_answers(app: FastAPI, service: Service) -> None:
    """Answer errors of the routes with the problem documents of ``docs/protocol.md``."""
    answer = partial(refusal_answer, service)

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> Response:
        return answer(refusal)

    @app.exception_handler(OSError)
    async def disk_error(request: Request, error: OSError) -> Response:
        version = request.path_params.get("version")
        if isinstance(error, FileNotFoundError) and version is not None:
            return answer(Refusal("no-such-version", f"version {version} is not kept: check in for new work"))
        if error.filename is None:  # not the disk's
            raise error
        return answer(service.engine.disk.refusal(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:5])[:200]
        detail = f"{where}: {first['msg'][:200]}".encode("unicode_escape").decode("ascii")
        return answer(Refusal("malformed-request", detail))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        kind = _KINDS.get(error.status_code, "malformed-request")
        return answer(Refusal(kind, str(error.detail), error.headers))

    @app.exception_handler(ClientDisconnect)
    async def disconnected(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody receives it
