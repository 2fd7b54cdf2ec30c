"""Servers of the simulated world: ``serve`` as it is, on a simulated log, blobs and network."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from offbeat_core.serving.certificates import Certificates

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.replay import Replay
from offbeat.service.front.front import Front
from offbeat.service.front.front_process import FrontSettings, serve_front
from offbeat.service.server.serving import Listening, serve
from offbeat.service.server_settings import FrontsElsewhere, ServerSettings, ServiceSettings
from offbeat.service.store.server_state import ServerState
from offbeat.service.store_settings import StoreSettings
from tests.cluster.link import Link
from tests.cluster.virtual_loop import Process

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
        await serve_front(settings, Listener(), stop, lambda: self.world.trace(self.name, "has found a leader"))


def leader_address(machine: str) -> tuple[str, int]:
    """Return where a machine's server listens for fronts."""
    return machine, 1


class Listener:
    """The socket for clients, which is none."""

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return "simulated", 1


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
