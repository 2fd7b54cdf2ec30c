"""Servers of the simulated world: ``serve`` as it is, on a simulated log, blobs and network."""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import torch

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.audit import audit_log
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.engine import server_checkpoint, standby, start_up
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.replay import Replay
from offbeat.service.engine.standby import Silence
from offbeat.service.front.front import Front
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.http.error_answers import error_answer, refusal_answer
from offbeat.service.log import log_writer, show_life
from offbeat.service.server import serving
from offbeat.service.server.serving import Listening, serve
from offbeat.service.server_settings import ServerSettings, ServiceSettings
from offbeat.service.store import store
from offbeat.service.store.client_tally import ClientTally
from offbeat.service.store_settings import StoreSettings
from tests.cluster.link import Link
from tests.cluster.shared_blobs import BlobsConnection
from tests.cluster.shared_log import LogConnection
from tests.cluster.virtual_loop import Process, here

if TYPE_CHECKING:
    from tests.cluster.world import World

CLIENTS = 4
LENGTH = 3
LAYOUT = [("weight", (LENGTH,))]
PLAN = LocalPlan(steps=2, batch_size=1, lr=0.5)


class Served(NamedTuple):
    """The parts that answer requests, in a server of one process."""

    service: Operations
    front: Front


Operation = Callable[[Served], Awaitable[Any]]


def new_coordinator(lease_seconds: float) -> Coordinator:
    """Return the coordinator of a run that has not begun."""
    algorithm = FedBuff(buffer_size=2, concurrency=3)
    return Coordinator(algorithm, torch.zeros(LENGTH), clients=CLIENTS, local=PLAN, seed=7, lease_seconds=lease_seconds)


class ServerProcess(Process):
    """A process that serves, from its start to its end.

    Attributes:
        app: Answers requests; None unless it listens.
        service: What it answers with, once it leads.
        replay: The state with which it follows the log, and later leads.
    """

    def __init__(self, world: "World", name: str, folder: Path) -> None:
        super().__init__(name)
        random = world.random
        self.world = world
        self.folder = folder
        self.log_link = Link(random, world.faults)
        self.blobs_link = Link(random, world.faults)
        self.app: Callable[..., Awaitable[None]] | None = None
        self.service: Operations | None = None
        self.replay: Replay | None = None
        self.ended: str | None = None
        self.requests = 0
        self._offset, self._rate = random.random() * 1000, random.uniform(0.99, 1.01)
        self._stop: asyncio.Event | None = None

    def clock(self) -> float:
        """Return monotonic seconds of the process's machine."""
        return self._offset + self._rate * self.world.loop.time()

    def begin(self) -> None:
        task = self.start(self._serve())
        task.add_done_callback(self._note_end)

    def end(self) -> None:
        """Ask the server to end, as by SIGTERM."""
        if self._stop is not None:
            self.world.loop.call_soon(self._stop.set, context=self.context)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        world = self.world
        service = {"port": 0, "requests_a_second": 1e6, "seed": 7, "checkpoint_seconds": world.checkpoint_seconds}
        settings = ServerSettings(
            folder=self.folder,
            service=ServiceSettings.model_construct(**service),
            store=StoreSettings.model_construct(log="simulated", blobs="simulated"),
            burst=10**6,
            lease_seconds=world.lease_seconds,
            stop_versions=world.stop_versions,
            config={"stop": {"versions": world.stop_versions}},
            clock=self.clock,
        )
        await serve(settings, new_coordinator(world.lease_seconds), LAYOUT, ready=self._ready, stop=self._stop)

    def _ready(self, listening: Listening) -> None:
        self.world.trace(self.name, "listens", epoch=listening.service.engine.log_writer.epoch)
        self.service = listening.service
        self.world.enrolment_tokens.append(listening.enrolment_token)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self.ended = repr(error) if error else "stopped"
        self.app = None
        self.kill()  # what its tasks would still do
        self.world.loop.later(0, self.world.note_end, self, error)


class Http:
    """The server's side of the simulated network, in place of ``HttpServer``."""

    def __init__(self, app: Callable[..., Awaitable[None]], *_: object) -> None:
        self._app = app
        self._is_stopping = asyncio.Event()

    async def serve(self) -> None:
        process = here()
        assert isinstance(process, ServerProcess)
        process.app = self._app
        await self._is_stopping.wait()
        process.app = None
        while process.requests:
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        self._is_stopping.set()


def make_app(service: Operations, front: Front, *_: object) -> ConfirmedDenials:
    """Return the application: its requests are calls of the operations, its errors and denials those of HTTP."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            status, body = 200, await scope["operation"](Served(service, front))
        except Exception as error:
            response = error_answer(front, service.count_refusal, error, scope["path_parameters"])
            status, body = response.status_code, json.loads(response.body)
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": body})

    def answer(refusal: Any) -> Any:
        response = refusal_answer(service.count_refusal, refusal)

        async def respond(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": response.status_code})
            await send({"type": "http.response.body", "body": json.loads(response.body)})

        return respond

    return ConfirmedDenials(app, service.engine.confirm, answer)


class _Listener:
    def __enter__(self) -> "_Listener":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return "simulated", 1


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


def _process() -> ServerProcess:
    process = here()
    assert isinstance(process, ServerProcess)
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
        _process().replay = self


def _wall_clock() -> float:
    process = here()
    return 1.7e9 + (process.clock() if isinstance(process, ServerProcess) else 0.0)


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
            (serving, "listen", lambda *_: _Listener()),
            (serving, "check", _no_check),
            (serving, "HttpServer", Http),
            (serving, "make_app", make_app),
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


@dataclass
class Machine:
    """A machine of the cluster: its folder, and the server that runs on it, started again whenever it has ended."""

    world: "World"
    name: str
    folder: Path
    process: ServerProcess | None = None
    starts: int = 0

    def start(self) -> None:
        """Start the server, unless it runs."""
        if self.process is not None and not self.process.is_killed:
            return
        self.starts += 1
        self.process = ServerProcess(self.world, f"{self.name}.{self.starts}", self.folder)
        self.world.trace(self.process.name, "starts")
        self.process.begin()

    def kill(self) -> None:
        """Kill the server."""
        if self.process is not None and not self.process.is_killed:
            self.world.trace(self.process.name, "killed")
            self.process.kill()
            self.process.app = None

    def lose_disk(self) -> None:
        """Replace a dead machine by one with an empty folder."""
        self.world.trace(self.name, "empty folder")
        shutil.rmtree(self.folder)
