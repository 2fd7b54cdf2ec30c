"""The HTTP application, and its answers to errors."""

import logging
import time
from functools import partial

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from offbeat_core.messages import PROTOCOL
from offbeat_core.serving.connections import Connections, CountedRequests
from offbeat_core.serving.console_log import event
from offbeat_core.serving.http_server import UnreadBody
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.engine.operations import Operations
from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.http.admin_routes import add_admin_routes
from offbeat.service.http.client_routes import add_client_routes
from offbeat.service.http.live_routes import add_live_routes
from offbeat.service.http.request_limits import BodyLimit, TokenLimit
from offbeat.service.http.request_parts import PROBLEMS, authenticate, malformed
from offbeat.service.http.upload_route import UploadRoute, describe_upload
from offbeat.service.live.viewers import Viewers
from offbeat.service.refusal import Refusal

_KINDS = {404: "not-found", 405: "method-not-allowed"}


def refusal_answer(service: Operations, refusal: Refusal) -> Response:
    """Return the answer to a refused request, and count and log the refusal."""
    service.metrics.refusals.labels(refusal.kind).inc()
    service.accounts.audit.count("refusals", refusal.kind)
    event("refused", logging.WARNING, kind=refusal.kind, detail=refusal.detail)
    return JSONResponse(refusal.problem(), refusal.status, refusal.headers, media_type="application/problem+json")


def add_error_answers(app: FastAPI, service: Operations) -> None:
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
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return answer(malformed(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        kind = _KINDS.get(error.status_code, "malformed-request")
        return answer(Refusal(kind, str(error.detail), error.headers))

    @app.exception_handler(ClientDisconnect)
    async def disconnected(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody receives it


def make_app(service: Operations, connections: Connections, viewers: Viewers) -> ASGIApp:
    """Return the application of a service over these connections."""
    api = FastAPI(
        title="Offbeat", version=PROTOCOL, docs_url=None, redoc_url=None, redirect_slashes=False, responses=PROBLEMS
    )
    api.state.service = service
    api.state.connections = connections
    add_client_routes(api, service)
    describe_upload(api)
    add_admin_routes(api, service)
    add_live_routes(api, service, viewers)
    add_error_answers(api, service)
    answer = partial(refusal_answer, service)
    app = BodyLimit(api, partial(authenticate, service, connections), answer)
    app = UploadRoute(app, service, connections, answer)
    app = TokenLimit(app, connections.max_per_token, answer)
    app = RequestTimer(UnreadBody(app), service.metrics)
    return CountedRequests(app, connections)


class RequestTimer:
    """An ASGI middleware that measures the seconds until an answer begins, by route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        began = time.perf_counter()

        async def send_measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.seconds.labels(route).observe(time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, send_measured if scope["type"] == "http" else send)
