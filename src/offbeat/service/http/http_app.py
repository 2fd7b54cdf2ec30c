"""The HTTP application, and its answers to errors."""

import time
from collections.abc import Awaitable
from functools import partial

from fastapi.responses import JSONResponse, Response
from offbeat_core.serving.connections import Connections
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.engine.operations import Operations
from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.front.front import Front
from offbeat.service.http.admin_routes import add_admin_routes
from offbeat.service.http.authentication import authenticate
from offbeat.service.http.client_routes import add_client_routes
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.http.error_answers import error_answer, refusal_answer
from offbeat.service.http.front_app import new_api
from offbeat.service.http.live_routes import add_live_routes
from offbeat.service.http.request_limits import BodyLimit, TokenLimit
from offbeat.service.http.session_cookie import SessionCookie
from offbeat.service.http.typed_routes import TypedRoutes


def make_app(service: Operations, front: Front, connections: Connections, public_url: str) -> ASGIApp:
    """Return the application of a server that leads, over these connections."""
    api = new_api(front, connections)
    api.state.service = service
    add_client_routes(api, service, front.uploads)
    add_admin_routes(api, service)
    login = service.settings.login
    login_url = None
    if login is not None:
        from offbeat.service.http.login_routes import LOGIN, add_login_routes  # with joserfc

        url = login.url or public_url
        add_login_routes(api, login, url, service.accounts, service.engine.log_writer, service.count_refusal)
        login_url = url + LOGIN
    add_live_routes(api, service, login_url)

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        """Return the description of all routes."""
        return JSONResponse(api.openapi())

    answer = partial(refusal_answer, service.count_refusal)
    app = TypedRoutes(api, partial(error_answer, front.disk_refusal, service.count_refusal))
    app = BodyLimit(app, partial(authenticate, service.accounts, connections), answer)
    app = TokenLimit(app, connections.max_per_token, answer)
    app = ConfirmedDenials(app, service.engine.confirm, answer)
    if login is not None:
        app = SessionCookie(app, login.cookie)
    return RequestTimer(app, service.metrics)


class RequestTimer:
    """An ASGI middleware that measures the seconds until an answer begins, by route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request."""
        began = time.perf_counter()

        async def send_measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.seconds.labels(route).observe(time.perf_counter() - began)
            await send(message)

        return self._app(scope, receive, send_measured if scope["type"] == "http" else send)
