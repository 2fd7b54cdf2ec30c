"""Servers of the simulated world: ``serve`` as it is, on a simulated log, blobs and network."""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import torch
from offbeat_core.serving.certificates import Certificates

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.audit import audit_log
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.engine import server_checkpoint, standby, start_up
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.replay import Replay
from offbeat.service.engine.standby import Silence
from offbeat.service.front import front_process
from offbeat.service.front.front import Front
from offbeat.service.front.front_process import FrontSettings, serve_front
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.http.error_answers import error_answer, refusal_answer
from offbeat.service.internal import leader_connection
from offbeat.service.log import log_writer, show_life
from offbeat.service.server import fronts, serving
from offbeat.service.server.serving import Listening, serve
from offbeat.service.server_settings import FrontsElsewhere, ServerSettings, ServiceSettings
from offbeat.service.store import store
from offbeat.service.store.client_tally import ClientTally
from offbeat.service.store.server_state import ServerState
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
CERTIFICATES = Certificates(Path("none"), Path("none"), Path("none"))
PLAN = LocalPlan(steps=2, batch_size=1, lr=0.5)


class Served(NamedTuple):
    """The parts of a process that answer requests; a front has no operations."""

    front: Front
    service: Operations | None = None


Operation = Callable[[Served], Awaitable[Any]]


def new_coordinator(lease_seconds: float) -> Coordinator:
    """Return the coordinator of a run that has not begun."""
    algorithm = FedBuff(buffer_size=2, concurrency=3)
    return Coordinator(algorithm, torch.zeros(LENGTH), clients=CLIENTS, local=PLAN, seed=7, lease_seconds=lease_seconds)


class ServingProcess(Process):
    """A process that serves clients: a server, or a front.

    Attributes:
        app: Answers requests; None unless it listens.
    """

    def __init__(self, world: "World", name: str, folder: Path) -> None:
        super().__init__(name)
        random = world.random
        self.world = world
        self.folder = folder
        self.log_link = Link(random, world.faults)
        self.blobs_link = Link(random, world.faults)
        self.app: Callable[..., Awaitable[None]] | None = None
        self.requests = 0
        self.settings = ServiceSettings.model_construct(
            port=0, requests_a_second=1e6, seed=7, checkpoint_seconds=world.checkpoint_seconds
        )
        self._offset, self._rate = random.random() * 1000, random.uniform(0.99, 1.01)
        self._stop: asyncio.Event | None = None

    def clock(self) -> float:
        """Return monotonic seconds of the process's machine."""
        return self._offset + self._rate * self.world.loop.time()

    def begin(self) -> None:
        self._stop = asyncio.Event()
        self.start(self.serve(self._stop)).add_done_callback(self._note_end)

    def end(self) -> None:
        """Ask the process to end, as by SIGTERM."""
        if self._stop is not None:
            self.world.loop.call_soon(self._stop.set, context=self.context)

    def kill(self) -> None:
        super().kill()
        self.app = None
        self.world.wires.lose(self)

    async def serve(self, stop: asyncio.Event) -> None:
        """Do the work of the process until it is stopped."""
        raise NotImplementedError

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self.kill()  # what its tasks would still do
        self.world.loop.later(0, self.world.note_end, self, error)


class ServerProcess(ServingProcess):
    """A process that leads or stands by.

    Attributes:
        replay: The state with which it follows the log.
        engine: That of a leader.
    """

    replay: Replay | None = None
    engine: Engine | None = None

    def state(self) -> tuple[int, Coordinator | None, ServerState | None]:
        """Return the last row that the process knows, and its state there."""
        if self.engine is not None:
            return self.engine.log_writer.number, self.engine.coordinator, self.engine.state
        if self.replay is not None:
            return self.replay.number, self.replay.coordinator, self.replay.state
        return 0, None, None

    async def serve(self, stop: asyncio.Event) -> None:
        world = self.world
        settings = ServerSettings(
            folder=self.folder,
            service=self.settings,
            store=StoreSettings.model_construct(log="simulated", blobs="simulated"),
            fronts=FrontsElsewhere(*leader_address(self.folder.name), CERTIFICATES),
            burst=10**6,
            lease_seconds=world.lease_seconds,
            stop_versions=world.stop_versions,
            config={"stop": {"versions": world.stop_versions}},
            clock=self.clock,
        )
        await serve(settings, new_coordinator(world.lease_seconds), LAYOUT, ready=self._ready, stop=stop)

    def _ready(self, listening: Listening) -> None:
        self.world.trace(self.name, "listens", epoch=listening.service.engine.log_writer.epoch)
        self.engine = listening.service.engine
        self.world.enrolment_tokens.append(listening.enrolment_token)


class FrontProcess(ServingProcess):
    """A front on a machine of its own."""

    async def serve(self, stop: asyncio.Event) -> None:
        settings = FrontSettings(
            folder=self.folder,
            blobs="simulated",
            leaders=[leader_address(machine.name) for machine in self.world.machines if machine.kind is ServerProcess],
            internal=CERTIFICATES,
            requests_a_second=1e6,
            connections_per_address=None,
            burst=10**6,
            upload_budget=2**30,
        )
        await serve_front(settings, _Listener(), stop, lambda: self.world.trace(self.name, "has found a leader"))


def leader_address(machine: str) -> tuple[str, int]:
    """Return where a machine's server listens for fronts."""
    return machine, 1


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

    def stop(self) -> None:
        self._is_stopping.set()


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
            (serving, "listen", lambda *_: _Listener()),
            (fronts, "leader_context", lambda _: object()),
            (leader_connection, "front_context", lambda _: object()),
            (front_process, "open_blobs", _open_blobs),
            (front_process, "HttpServer", Http),
            (front_process, "make_front_app", make_front_app),
            (front_process, "Connections", _Connections),
            (front_process, "GRACE_SECONDS", 2.0),
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
    kind: type[ServingProcess] = ServerProcess
    process: ServingProcess | None = None
    starts: int = 0

    def start(self) -> None:
        """Start the server, unless it runs."""
        if self.process is not None and not self.process.is_killed:
            return
        self.starts += 1
        self.process = self.kind(self.world, f"{self.name}.{self.starts}", self.folder)
        self.world.trace(self.process.name, "starts")
        self.process.begin()

    def kill(self) -> None:
        """Kill the server."""
        if self.process is not None and not self.process.is_killed:
            self.world.trace(self.process.name, "killed")
            self.process.kill()

    def lose_disk(self) -> None:
        """Replace a dead machine by one with an empty folder."""
        self.world.trace(self.name, "empty folder")
        shutil.rmtree(self.folder, ignore_errors=True)
