"""The HTTP application of a server of several runs."""

from functools import partial

from fastapi import FastAPI
from fastapi.responses import JSONResponse, RedirectResponse, Response
from offbeat_core.messages import PROTOCOL
from offbeat_core.serving.connections import Connections
from starlette.types import ASGIApp, Receive, Scope, Send

from offbeat.service.front.request_rate import RequestRate
from offbeat.service.hosting.host_page import add_page_routes
from offbeat.service.hosting.host_routes import add_host_routes
from offbeat.service.hosting.host_service import HostService
from offbeat.service.http.authentication import authenticate
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.http.error_answers import error_answer, refusal_answer
from offbeat.service.http.live_routes import PageFiles
from offbeat.service.http.request_limits import BodyLimit, TokenLimit
from offbeat.service.http.request_parts import PROBLEMS, bearer_token, header
from offbeat.service.http.session_cookie import SessionCookie
from offbeat.service.http.typed_routes import TypedRoutes
from offbeat.service.login.login_settings import LoginSettings
from offbeat.service.refusal import Refusal

_PREFIX = "/runs/"
_OF_A_RUN = ("/v1/", "/metrics", "/openapi.json")
"""What a run answers, and only to those with a token: nobody else may know its name."""


def make_host_app(
    service: HostService, rate: RequestRate, connections: Connections, login: LoginSettings | None, public_url: str
) -> ASGIApp:
    """Return the application: the server's routes, and each run's below a prefix.

    Who has logged in, at the server, is so in all runs.
    """
    api = FastAPI(
        title="Offbeat", version=PROTOCOL, docs_url=None, redoc_url=None, redirect_slashes=False, responses=PROBLEMS
    )
    api.state.service, api.state.rate, api.state.connections = service, rate, connections
    add_host_routes(api, service)
    login_url = None
    if login is not None:
        from offbeat.service.http.login_routes import LOGIN, add_login_routes  # with joserfc

        url = login.url or public_url
        add_login_routes(api, login, url, service.accounts, service.home.log_writer, service.count_refusal)
        login_url = url + LOGIN
    files = PageFiles({"log-in": login_url, "all-runs": "../../"})
    add_page_routes(api, service, files)

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        """Return the description of all routes."""
        return JSONResponse(api.openapi())

    answer = partial(refusal_answer, service.count_refusal)
    app: ASGIApp = TypedRoutes(api, partial(error_answer, service.home.disk.refusal, service.count_refusal))
    app = BodyLimit(app, partial(authenticate, service.accounts, connections), answer)
    app = ConfirmedDenials(TokenLimit(app, connections.max_per_token, answer), service.confirm, answer)
    app = HostApp(app, service, files)
    return app if login is None else SessionCookie(app, login.cookie)


class HostApp:
    """An ASGI application that hands requests below ``/runs/NAME`` to that run."""

    def __init__(self, app: ASGIApp, service: HostService, files: PageFiles) -> None:
        self._app = app
        self._service = service
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or not scope["path"].startswith(_PREFIX):
            await self._app(scope, receive, send)
            return
        name, slash, rest = scope["path"][len(_PREFIX) :].partition("/")
        path = f"/{rest}"
        try:
            if not slash:
                response: Response = RedirectResponse(f"{_PREFIX}{name}/", 308)
            elif path == "/" or path.startswith("/live/"):
                # The page's files are the same for every name, so that they do not tell which runs there are.
                response = self._files.answer(rest or "live/index.html", header(scope, b"if-none-match"))
            elif path.startswith(_OF_A_RUN):
                await self._of_run(name, {**scope, "path": path}, receive, send)
                return
            else:
                raise Refusal("not-found", "Not Found")
        except Refusal as refusal:
            response = refusal_answer(self._service.count_refusal, refusal)
        await response(scope, receive, send)

    async def _of_run(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        runs, token = self._service.runs, bearer_token(scope)
        if not runs.is_open(name):  # before anything tells whether the run is there, and before it is opened
            try:
                self._service.check_may_open(name, token)
            except Refusal as refusal:
                if refusal.kind != "unknown-token" or runs.problem_of(name) is None:
                    raise  # else it may be a token of the run, which only the open run knows
        run = await runs.get(name)
        run.accounts.check_any(token, may_have_ended=scope["path"] == "/v1/enrol")
        run.take_request()
        with run.used():
            await run.service.app(scope, receive, send)
        if scope["method"] == "POST" and scope["path"].startswith("/v1/admin/"):
            runs.note_change()  # it may have been extended or resumed
