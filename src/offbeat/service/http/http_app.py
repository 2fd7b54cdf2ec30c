"""The HTTP application."""

import time
from functools import partial

from fastapi import FastAPI
from offbeat_core.messages import PROTOCOL
from offbeat_core.serving.connections import Connections, CountedRequests
from offbeat_core.serving.http_server import UnreadBody
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.engine.service import Service
from offbeat.service.http.admin_routes import add_admin_routes
from offbeat.service.http.body_limit import BodyLimit
from offbeat.service.http.client_routes import add_client_routes
from offbeat.service.http.control_routes import add_control_routes
from offbeat.service.http.error_answers import add_error_answers, refusal_answer
from offbeat.service.http.live_routes import add_live_routes
from offbeat.service.http.request_parts import PROBLEMS, authenticate
from offbeat.service.http.token_limit import TokenLimit
from offbeat.service.live.viewers import Viewers


def make_app(service: Service, connections: Connections, viewers: Viewers) -> FastAPI:
    """Return the application of a service over these connections."""
    app = FastAPI(
        title="Offbeat", version=PROTOCOL, docs_url=None, redoc_url=None, redirect_slashes=False, responses=PROBLEMS
    )
    app.state.service = service
    app.state.connections = connections
    add_client_routes(app, service)
    add_admin_routes(app, service)
    add_control_routes(app, service)
    add_live_routes(app, service, viewers)
    add_error_answers(app, service)
    app.add_middleware(
        BodyLimit,
        authenticate=partial(authenticate, service, connections),
        answer=partial(refusal_answer, service),
    )
    app.add_middleware(TokenLimit, most=connections.max_per_token, answer=partial(refusal_answer, service))
    app.add_middleware(UnreadBody)
    app.add_middleware(RequestTimer, metrics=service.metrics)
    app.add_middleware(CountedRequests, connections=connections)
    return app


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
