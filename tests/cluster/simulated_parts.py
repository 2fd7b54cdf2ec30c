"""The parts that servers and fronts of the simulated world have in place of the real ones."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.audit import audit_log
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.engine import server_checkpoint, standby, start_up
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.replay import Replay
from offbeat.service.engine.standby import Silence
from offbeat.service.front import front_process
from offbeat.service.front.front import Front
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.http.error_answers import error_answer, refusal_answer
from offbeat.service.internal import leader_connection
from offbeat.service.log import log_writer, show_life
from offbeat.service.server import fronts, run_service, serving
from offbeat.service.store import store
from offbeat.service.store.client_tally import ClientTally
from tests.cluster.server import Listener, Served, ServerProcess, ServingProcess
from tests.cluster.shared_blobs import BlobsConnection
from tests.cluster.shared_log import LogConnection
from tests.cluster.virtual_loop import here


class Http:
    """The server's side of the simulated network, in place of ``HttpServer``."""

    def __init__(self, app: Callable[..., Awaitable[None]], *_: object) -> None:
        self._app = app
        self._is_stopping = asyncio.Event()

    async def serve(self) -> None:
        process = _process()
        process.app = self._app
        await self._is_stopping.wait()
        process.app = None
        while process.requests:
            await asyncio.sleep(0.05)

    async def close(self, serving: asyncio.Task[None], seconds: float) -> None:
        self._is_stopping.set()
        await asyncio.wait([serving], timeout=seconds)


def make_app(service: Operations, front: Front, *_: object) -> ConfirmedDenials:
    """Return a server's application: its requests are calls, its errors and denials those of HTTP."""
    count = service.count_refusal
    answer = partial(_respond, partial(refusal_answer, count))
    return ConfirmedDenials(_app(Served(front, service), count), service.engine.confirm, answer)


def make_front_app(front: Front, *_: object) -> Any:
    """Return a front's application."""
    return _app(Served(front), lambda _: None)


def _app(served: Served, count: Callable[[str], None]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            body = await scope["operation"](served)
        except Exception as error:
            answered = partial(error_answer, served.front, count, path_parameters=scope["path_parameters"])
            await _respond(answered, error)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": body})

    return app


def _respond(make: Callable[[Any], Any], error: Exception) -> Any:
    async def respond(scope: Any, receive: Any, send: Any) -> None:
        response = make(error)
        await send({"type": "http.response.start", "status": response.status_code})
        await send({"type": "http.response.body", "body": json.loads(response.body)})

    return respond


class _Lock:
    """The lock of a folder, which no two processes of the world have."""

    def __init__(self, path: Path) -> None:
        pass

    def acquire(self, **_: object) -> None:
        pass

    def release(self) -> None:
        pass


class _Connections:
    def __init__(self, *_: object) -> None:
        pass

    async def keep_watch(self) -> None:
        await asyncio.Event().wait()


def _process() -> ServingProcess:
    process = here()
    assert isinstance(process, ServingProcess)
    return process


def _open_log(*_: object) -> LogConnection:
    process = _process()
    return LogConnection(process.world.log, process.log_link, process.name)


def _open_blobs(*_: object) -> BlobsConnection:
    process = _process()
    return BlobsConnection(process.world.blobs, process.blobs_link, process.folder / "partial")


class _Replay(Replay):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        process = _process()
        assert isinstance(process, ServerProcess)
        process.replay = self


def _wall_clock() -> float:
    process = here()
    return 1.7e9 + (process.clock() if isinstance(process, ServingProcess) else 0.0)


async def _no_check(_: object) -> None:
    pass


@contextmanager
def simulated_parts() -> Generator[None]:
    """Give ``serve`` the simulated parts of its process within the context."""
    with ExitStack() as stack:
        for module, name, part in (
            (store, "open_log", _open_log),
            (store, "open_blobs", _open_blobs),
            (store, "FileLock", _Lock),
            (serving, "listen", lambda *_: Listener()),
            (fronts, "leader_context", lambda _: object()),
            (leader_connection, "front_context", lambda _: object()),
            (front_process, "open_blobs", _open_blobs),
            (front_process, "HttpServer", Http),
            (front_process, "make_front_app", make_front_app),
            (front_process, "Connections", _Connections),
            (front_process, "GRACE_SECONDS", 2.0),
            (serving, "check", _no_check),
            (serving, "HttpServer", Http),
            (run_service, "make_app", make_app),
            (serving, "Connections", _Connections),
            (standby, "Silence", lambda: Silence(_process().clock)),
            (standby, "time", SimpleNamespace(monotonic=lambda: _process().clock())),
            (start_up, "Replay", _Replay),
            (server_checkpoint, "_LOG_BYTES", 0),  # of a reserve that no disk here needs
            # Shorter waits than in reality, in much the same proportion, so that a schedule has fewer events.
            (standby, "_SILENT_SECONDS", 1.0),
            (show_life, "_BEAT_SECONDS", 0.3),
            (standby, "_LOOK_SECONDS", 0.3),
            (server_checkpoint, "_STANDBY_SECONDS", 3.0),
            (log_writer, "_RETRY_SECONDS", 0.4),
            (serving, "GRACE_SECONDS", 2.0),
            (audit_log, "metadata", SimpleNamespace(version=lambda _: "0")),  # which takes milliseconds
            (AuditLog.__init__, "__defaults__", (_wall_clock,)),
            (ClientTally.__init__, "__defaults__", ((), _wall_clock)),
        ):
            stack.enter_context(patch.object(module, name, part))
        stack.enter_context(patch.dict(Accounts.__init__.__kwdefaults__, clock=_wall_clock))
        yield
