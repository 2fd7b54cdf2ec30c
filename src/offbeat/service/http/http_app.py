"""The HTTP application, and its answers to errors."""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from offbeat_core.messages import PROTOCOL
from offbeat_core.serving.connections import Connections, CountedRequests
from offbeat_core.serving.console_log import event
from offbeat_core.serving.http_server import UnreadBody
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.engine.operations import Operations
from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.front.forwarding import Forwarding
from offbeat.service.front.front import Front
from offbeat.service.http.admin_routes import add_admin_routes
from offbeat.service.http.client_routes import add_client_routes
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.http.live_routes import add_live_routes
from offbeat.service.http.request_limits import BodyLimit, TokenLimit
from offbeat.service.http.request_parts import PROBLEMS, authenticate
from offbeat.service.http.typed_routes import TypedRoutes
from offbeat.service.http.visit_routes import add_visit_routes
from offbeat.service.live.viewers import Viewers
from offbeat.service.refusal import Refusal


def refusal_answer(count: Callable[[str], None], refusal: Refusal) -> Response:
    """Return the answer to a refused request, and count and log the refusal."""
    count(refusal.kind)
    event("refused", logging.WARNING, kind=refusal.kind, detail=refusal.detail)
    return JSONResponse(refusal.problem(), refusal.status, refusal.headers, media_type="application/problem+json")


def error_answer(
    front: Front, count: Callable[[str], None], error: Exception, path_parameters: Mapping[str, str]
) -> Response:
    """Return the answer to a route's error, as in ``docs/protocol.md``; raise a bug."""
    match error:
        case Refusal():
            return refusal_answer(count, error)
        case FileNotFoundError() if "version" in path_parameters:
            problem = f"version {path_parameters['version']} is not kept: check in for new work"
            return refusal_answer(count, Refusal("no-such-version", problem))
        case OSError() if error.filename is not None:  # the disk's
            return refusal_answer(count, front.disk_refusal(error))
        case ClientDisconnect():
            return Response(status_code=499)  # nobody receives it
        case _:
            raise error


def make_app(service: Operations, front: Front, connections: Connections, viewers: Viewers) -> ASGIApp:
    """Return the application of a server that leads, over these connections."""
    api = _make_api(front, connections)
    api.state.service = service
    add_client_routes(api, service, front.uploads)
    add_admin_routes(api, service)
    add_live_routes(api, service, viewers)

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        """Return the description of all routes."""
        return JSONResponse(api.openapi())

    answer = partial(refusal_answer, service.count_refusal)
    app = TypedRoutes(api, partial(error_answer, front, service.count_refusal))
    app = BodyLimit(app, partial(authenticate, service, connections), answer)
    app = TokenLimit(app, connections.max_per_token, answer)
    app = ConfirmedDenials(app, service.engine.confirm, answer)
    app = RequestTimer(UnreadBody(app), service.metrics)
    return CountedRequests(app, connections)


def make_front_app(front: Front, connections: Connections) -> ASGIApp:
    """Return the application of a front.

    It has routes of its own, and passes all other requests on to the leader.
    """
    api = _make_api(front, connections)

    @api.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        """Answer as long as the front runs."""
        return Response("ok\n", media_type="text/plain")

    def count(_: str) -> None:
        """Count nothing: the leader counts what it refuses."""

    answer = partial(refusal_answer, count)
    app = TypedRoutes(api, partial(error_answer, front, count), Forwarding(front.leader))
    app = BodyLimit(app, lambda _: None, answer)  # the leader checks the token
    app = TokenLimit(app, connections.max_per_token, answer)
    return CountedRequests(UnreadBody(app), connections)


def _make_api(front: Front, connections: Connections) -> FastAPI:
    api = FastAPI(
        title="Offbeat", version=PROTOCOL, docs_url=None, redoc_url=None, redirect_slashes=False, responses=PROBLEMS
    )
    api.state.front = front
    api.state.connections = connections
    add_visit_routes(api, front)
    return api


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
