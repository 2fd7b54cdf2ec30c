"""The HTTP application of a front."""

from collections.abc import Callable
from functools import partial

from fastapi import FastAPI
from fastapi.responses import Response
from offbeat_core.messages import PROTOCOL
from offbeat_core.serving.connections import Connections
from starlette.types import ASGIApp, Scope

from offbeat.service.accounts.token_forms import hash_of
from offbeat.service.front.forwarding import Forwarding
from offbeat.service.front.front import Front
from offbeat.service.http.error_answers import error_answer, refusal_answer
from offbeat.service.http.request_limits import BodyLimit, TokenLimit
from offbeat.service.http.request_parts import PROBLEMS, bearer_token
from offbeat.service.http.session_cookie import SessionCookie
from offbeat.service.http.typed_routes import TypedRoutes
from offbeat.service.http.visit_routes import add_visit_routes


def make_front_app(
    front: Front, connections: Connections, session_cookie: str, prefix: Callable[[], str] = str
) -> ASGIApp:
    """Return the application of a front.

    It has routes of its own, and passes all other requests on to the leader, where their paths have the ``prefix``.
    People who have logged in send the cookie.
    """
    return front_stack(new_api(front, connections), front, connections, session_cookie, prefix)


def front_stack(
    api: FastAPI, front: Front, connections: Connections, session_cookie: str, prefix: Callable[[], str] = str
) -> ASGIApp:
    """Return an application of these routes; the leader has all others."""

    @api.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        """Answer as long as the front runs."""
        return Response("ok\n", media_type="text/plain")

    def count(_: str) -> None:
        """Count nothing: the leader counts what it refuses."""

    answer = partial(refusal_answer, count)
    app = TypedRoutes(api, partial(error_answer, front.disk_refusal, count), Forwarding(front.leader, prefix))
    app = BodyLimit(app, _check_form, answer)  # the leader checks the token itself
    app = TokenLimit(app, connections.max_per_token, answer)
    return SessionCookie(app, session_cookie)


def _check_form(scope: Scope) -> None:
    hash_of(bearer_token(scope), "client")


def new_api(front: Front, connections: Connections) -> FastAPI:
    """Return an application with the routes that each front serves."""
    api = FastAPI(
        title="Offbeat", version=PROTOCOL, docs_url=None, redoc_url=None, redirect_slashes=False, responses=PROBLEMS
    )
    api.state.rate = front.rate
    api.state.connections = connections
    add_visit_routes(api, front)
    return api
