"""A simulated world: servers that share a log, their clients, and all that can happen to them, by a seed."""

import asyncio
import gc
import logging
import os
import secrets
import tempfile
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest.mock import patch

from offbeat_core.errors import OffbeatError

from offbeat.coordinator import Coordinator
from offbeat.service.front import front
from tests.cluster.clients import Client
from tests.cluster.link import Faults
from tests.cluster.network import LostError, Network
from tests.cluster.promises import Promises
from tests.cluster.server import (
    CLIENTS,
    FrontProcess,
    Machine,
    Served,
    ServerProcess,
    ServingProcess,
    new_coordinator,
)
from tests.cluster.shared_blobs import SharedBlobs
from tests.cluster.shared_log import SharedLog
from tests.cluster.simulated_parts import simulated_parts
from tests.cluster.virtual_loop import VirtualLoop, here, run_virtually
from tests.cluster.wires import Wires

_SECONDS = 8.0  # of troubles
_HEALED_SECONDS = 10.0  # after which a healed cluster has to answer everybody
_SETTLED_SECONDS = 2.0  # for which clients work with a cluster that has recovered


class World:
    """One schedule; see ``play``.

    Attributes:
        broken: The promises that were not kept.
        is_settled: Whether the cluster has recovered, and no other trouble comes.
        lines: What has happened, in order, if it is traced.
    """

    def __init__(self, seed: int, folder: Path, trouble: str | None = None, *, is_traced: bool = False) -> None:
        self.random = random = Random(seed)
        self.lines: list[str] = []
        self.is_settled = False
        self.faults = Faults()
        self.lease_seconds = random.choice((2.0, 8.0))
        self.stop_versions = random.choice((5, 10**6, 10**6, 10**6))
        self.checkpoint_seconds = random.choice((0.5, 1.5))
        self.is_large = random.random() < 0.4
        self.enrolment_tokens: list[str] = []
        self.revoked: set[int] = set()
        self._is_traced = is_traced
        self._trouble_name = trouble
        self._most_revoked = random.choice((0, 1, 2))
        self.promises = Promises(self)
        self.log = SharedLog(random.randbytes(8).hex(), self.promises.appended)
        self.blobs = SharedBlobs()
        self.network = Network(self, random)
        self.machines = [Machine(self, f"s{i}", folder / f"s{i}") for i in range(random.choice((2, 2, 3)))]
        self.machines += [
            Machine(self, f"f{i}", folder / f"f{i}", FrontProcess) for i in range(random.choice((0, 0, 1, 2)))
        ]
        self.clients: list[Client] = []
        self.loop = cast(VirtualLoop, None)
        self.wires = cast(Wires, None)

    def new_coordinator(self) -> Coordinator:
        """Return the coordinator of the run before its first call."""
        return new_coordinator(self.lease_seconds)

    def processes(self) -> list[ServingProcess]:
        """Return the processes that are alive, stopped ones included."""
        found = [machine.process for machine in self.machines]
        return [process for process in found if process is not None and not process.is_killed]

    def trace(self, who: str, what: str, **facts: Any) -> None:
        """Note what happens, if it is traced."""
        if self._is_traced:
            shown = " ".join(f"{name}={value}" for name, value in facts.items())
            self.lines.append(f"{self.loop.time():8.3f} {who:10} {what} {shown}".rstrip())

    def note_error(self, error: BaseException) -> None:
        """Trace where an error came from."""
        if self._is_traced:
            self.lines += "".join(traceback.format_exception(error)).splitlines()

    def note_end(self, process: ServingProcess, error: BaseException | None) -> None:
        """Start a server again that has ended by itself."""
        self.trace(process.name, "ended", error=error)
        if error is not None and not isinstance(error, OffbeatError):
            self.promises.note(f"{process.name} ended by {error!r}")
            self.note_error(error)
        machine = next(machine for machine in self.machines if machine.process is process)
        self.loop.later(self.random.expovariate(3.0), machine.start)

    async def run(self) -> None:
        """Let the schedule happen, and check what was promised."""
        self.loop = cast(VirtualLoop, asyncio.get_running_loop())
        self.wires = self.loop.wires = Wires(self.loop, self.random)
        for machine in self.machines:
            self.loop.later(self.random.random() / 2, machine.start)
        self.clients = [Client(self, self.random) for _ in range(CLIENTS)]
        working = [asyncio.create_task(client.work()) for client in self.clients]
        working.append(asyncio.create_task(self.clients[0].watch()))
        troubles = asyncio.create_task(self._trouble())
        await asyncio.sleep(_SECONDS)
        troubles.cancel()
        self._heal()
        await self._check_recovery()
        self.is_settled = True
        await asyncio.sleep(_SETTLED_SECONDS)
        for task in working:
            task.cancel()
        await asyncio.sleep(0.5)
        for task in working:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.promises.note(f"a client failed: {task.exception()!r}")
                self.note_error(cast(BaseException, task.exception()))
        for problem in self.loop.problems:
            self.promises.note(problem)
        servers = [process for process in self.processes() if isinstance(process, ServerProcess)]
        self.promises.check_end(servers, [machine.folder for machine in self.machines])

    async def _trouble(self) -> None:
        """Cause troubles, one after the other, some of which last while others come."""
        random = self.random
        await asyncio.sleep(0.5 + random.random())
        causes: list[Callable[[ServingProcess], Any]] = [
            self._kill, self._stop, self._cut_log, self._cut_blobs, self._cut_fronts, self._isolate, self._end,
        ]  # fmt: skip
        # Each schedule has its own mixture, so that some have much of one trouble, and none of another.
        weights = [random.choice((0, 1, 5)) + 0.01 for _ in causes]
        if self._trouble_name is not None:
            weights = [cause.__name__ == f"_{self._trouble_name}" for cause in causes]
        while True:
            if processes := self.processes():
                # Mostly a server that leads.
                leading = [one for one in processes if isinstance(one, ServerProcess) and one.app is not None]
                process = random.choice(leading if leading and random.random() < 0.7 else processes)
                random.choices(causes, weights)[0](process)
            if random.random() < 0.1:
                self.loop.create_task(self._revoke())
            await asyncio.sleep(random.expovariate(1.0))

    def _kill(self, process: ServingProcess) -> None:
        machine = next(machine for machine in self.machines if machine.process is process)
        machine.kill()
        if self.random.random() < 0.2:
            machine.lose_disk()
        self.loop.later(self.random.expovariate(1.5), machine.start)

    def _stop(self, process: ServingProcess) -> None:
        self.trace(process.name, "stopped")
        process.stop()
        self.loop.later(self.random.choice((0.3, 5.0, 5.0)) * self.random.random(), self._go_on, process)

    def _go_on(self, process: ServingProcess) -> None:
        if process.is_stopped:
            self.trace(process.name, "goes on")
            process.go_on()

    def _cut_log(self, process: ServingProcess) -> None:
        self.trace(process.name, "cut from the log")
        process.log_link.is_cut = True
        self.loop.later(5.0 * self.random.random(), self._mend, process)

    def _cut_blobs(self, process: ServingProcess) -> None:
        self.trace(process.name, "cut from the blobs")
        process.blobs_link.is_cut = True
        self.loop.later(self.random.expovariate(0.8), self._mend, process)

    def _cut_fronts(self, process: ServingProcess) -> None:
        self.trace(process.name, "cut from other servers and fronts")
        self.wires.cut.add(process.name)
        self.loop.later(5.0 * self.random.random(), self._mend, process)

    def _isolate(self, process: ServingProcess) -> None:
        self.trace(process.name, "cut from clients")
        self.network.unreachable.add(process.name)
        self.loop.later(self.random.expovariate(0.8), self._mend, process)

    def _mend(self, process: ServingProcess) -> None:
        self.trace(process.name, "connected")
        process.log_link.is_cut = process.blobs_link.is_cut = False
        self.network.unreachable.discard(process.name)
        self.wires.cut.discard(process.name)

    def _end(self, process: ServingProcess) -> None:
        self.trace(process.name, "asked to end")
        process.end()

    async def _revoke(self) -> None:
        client = self.random.choice(self.clients)
        if client.number is None or len(self.revoked) == self._most_revoked:
            return
        number = client.number
        self.revoked.add(number)

        async def revoke(served: Served) -> None:
            assert served.service is not None
            await served.service.revoke(number)

        for _ in range(20):
            try:
                answer = await self.network.ask(revoke, 1.0, is_for_server=True)
            except LostError:
                continue
            self.trace("admin", f"revoke {number}", status=answer.status)
            if answer.status < 300:
                self.promises.revoked(number)
                return
            await asyncio.sleep(0.5)

    def _heal(self) -> None:
        self.trace("world", "healed")
        for process in self.processes():
            self._mend(process)
            self._go_on(process)
        self.network.faults.lost = self.network.faults.doubled = 0.0
        self.faults.not_sent = self.faults.broken = self.faults.lost_answer = self.faults.slow = 0.0
        for machine in self.machines:
            self.loop.later(self.random.random() / 2, machine.start)

    async def _check_recovery(self) -> None:
        async def write(served: Served) -> None:
            assert served.service is not None
            served.service.accounts.audit.add("probe")
            await served.service.engine.log_writer.wait_until_durable()

        try:
            async with asyncio.timeout(_HEALED_SECONDS):
                for client in self.clients:
                    await client.probe()
                while True:
                    try:
                        if (await self.network.ask(write, 1.0, is_for_server=True)).status == 200:
                            return
                    except LostError:
                        pass
                    await asyncio.sleep(0.3)
        except TimeoutError:
            self.promises.note(f"the cluster does not answer {_HEALED_SECONDS} seconds after all troubles have ended")


class _Events(logging.Handler):
    """The servers' own messages, for the trace; one that a question has failed is a broken promise."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = here()
        name = process.name if process is not None else "?"
        if record.getMessage() == "question_failed":
            lines = getattr(record, "fields", {})["trace"].strip().splitlines()
            self._world.promises.note(f"{name} could not answer: {lines[-1]}")
        self._world.trace(name, record.getMessage(), **getattr(record, "fields", {}))


def play(seed: int, trouble: str | None = None, *, is_traced: bool = False) -> World:
    """Play the schedule of a seed; return the world at its end.

    ``trouble`` is the only one that befalls servers: ``kill``, ``stop``, ``cut_log``, ``cut_blobs``,
    ``cut_fronts``, ``isolate`` or ``end``; None for a mixture.
    """
    log = logging.getLogger("offbeat.service")
    was_collecting = gc.isenabled()
    gc.disable()  # so that it does not end what only killed processes refer to
    with ExitStack() as stack:
        stack.callback(gc.enable if was_collecting else gc.disable)
        stack.callback(os.umask, os.umask(0o077))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_fast_folder())))
        stack.enter_context(simulated_parts())
        secret = Random(seed)
        stack.enter_context(patch.object(secrets, "token_bytes", lambda size=32: secret.randbytes(size)))
        world = World(seed, folder, trouble, is_traced=is_traced)
        if world.is_large:
            stack.enter_context(patch.object(front, "SMALL", 0))
        level, handlers, propagates = log.level, log.handlers, log.propagate
        log.setLevel(logging.DEBUG if is_traced else logging.ERROR)
        log.handlers, log.propagate = [_Events(world)], False
        try:
            run_virtually(world.run(), Random(seed))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            world.promises.note(f"the schedule failed: {error!r}")
            world.note_error(error)
        finally:
            log.setLevel(level)
            log.handlers, log.propagate = handlers, propagates
    return world


def _fast_folder() -> str | None:
    """Return a folder in memory, if the system has one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
