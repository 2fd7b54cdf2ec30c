"""The application of a front whose leader has several runs."""

from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from fastapi import FastAPI, Request
from offbeat_core import messages
from offbeat_core.messages import PROTOCOL
from offbeat_core.serving.connections import Connections
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from offbeat.service.front.front import Asks, Front
from offbeat.service.http.front_app import front_stack, make_front_app
from offbeat.service.http.request_parts import PROBLEMS, Text
from offbeat.service.http.visit_routes import Client, while_connected
from offbeat.service.internal.questions import FindWork, Question
from offbeat.service.server.host_folder import RUNS

A = TypeVar("A", bound=BaseModel)

_PREFIX = f"/{RUNS}/"
_run: ContextVar[str] = ContextVar("run", default="")  # that the request under way is about


class FrontOfRuns:
    """An ASGI application with a front for each run; it passes other requests on.

    Args:
        leader: The way to the leader.
        make_front: Makes the front of a run, which asks this way; its folder is None for a run that is not there.
        connections: Those to this front.
        folder: The leader's.
        session_cookie: The name of the cookie of people who have logged in.
    """

    def __init__(
        self,
        leader: Asks,
        make_front: Callable[[Asks, Path | None], Front],
        connections: Connections,
        folder: Path,
        session_cookie: str,
    ) -> None:
        asks = _AsksAboutRun(leader)
        self._make = lambda run: make_front_app(
            make_front(asks, run), connections, session_cookie, lambda: f"{_PREFIX}{_run.get()}"
        )
        self._folder = folder / RUNS
        self._runs: dict[str, ASGIApp] = {}
        # As any run's for those who may not know which runs there are: the leader refuses them.
        self._missing = self._make(None)
        common = make_front(leader, None)
        self._common = front_stack(_api(leader, common, connections), common, connections, session_cookie)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        name, _, path = scope["path"].removeprefix(_PREFIX).partition("/")
        if scope["type"] != "http" or not scope["path"].startswith(_PREFIX) or not path.startswith("v1/"):
            await self._common(scope, receive, send)
            return
        before = _run.set(name)
        try:
            await self._app_of(name)({**scope, "path": f"/{path}"}, receive, send)
        finally:
            _run.reset(before)

    def _app_of(self, name: str) -> ASGIApp:
        if name not in self._runs:
            folder = self._folder / name
            if name in ("", ".", "..") or not folder.is_dir():
                return self._missing
            self._runs[name] = self._make(folder)
        return self._runs[name]


class _AsksAboutRun:
    """Asks the leader about the run of the request under way."""

    def __init__(self, leader: Asks) -> None:
        self._leader = leader

    async def ask(self, question: Question[A]) -> A:
        """Return the leader's answer, or raise ``Refusal``."""
        return await self._leader.ask(question.model_copy(update={"run": _run.get()}))


def _api(leader: Asks, front: Front, connections: Connections) -> FastAPI:
    """Return the description of the routes that concern no single run."""
    api = FastAPI(
        title="Offbeat", version=PROTOCOL, docs_url=None, redoc_url=None, redirect_slashes=False, responses=PROBLEMS
    )
    api.state.rate, api.state.connections = front.rate, connections

    @api.post("/v1/work")
    async def work(
        request: Request,
        client: Client,
        asked: messages.WorkRequest,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
    ) -> messages.Work:
        """Ask in which run there is work."""
        question = FindWork(
            token=client.token,
            wait_seconds=asked.wait_seconds,
            without=asked.without,
            protocol=offbeat_protocol,
            supports=offbeat_supports,
        )
        found = await while_connected(request.receive, _asked(leader, question))
        client.trust()
        return found

    return api


async def _asked(leader: Asks, question: FindWork) -> messages.Work:
    return await leader.ask(question)
