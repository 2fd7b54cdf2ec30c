"""The runs of a server: open while at work, later on request."""

import asyncio
import logging
import time
from collections.abc import Iterator
from functools import partial

from offbeat_core.errors import OffbeatError
from offbeat_core.messages import MOST_RUNS
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import event

from offbeat.service.accounts.registry import HOSTED
from offbeat.service.hosting.home import Home
from offbeat.service.hosting.hosted_accounts import no_such_run
from offbeat.service.hosting.hosted_run import HostedRun, Prepare
from offbeat.service.refusal import Refusal
from offbeat.service.server.host_folder import RUNS
from offbeat.service.server.spent_privacy import spent_by_identity

_LOOK_SECONDS = 5.0  # between two looks which runs are over
_IDLE_SECONDS = 120.0  # after which a run that is over is closed


class Runs:
    """Opens and closes the runs that ``home`` lists.

    Attributes:
        changed: Set and replaced when a site may have other runs than before.
    """

    def __init__(self, home: Home, prepare: Prepare, connections: Connections, url: str) -> None:
        self.changed = asyncio.Event()
        self._home = home
        self._prepare = prepare
        self._connections = connections
        self._url = url
        self._open: dict[str, HostedRun] = {}
        self._failed: dict[str, str] = {}  # the problems of runs that could not be opened
        self._opening: dict[str, asyncio.Task[HostedRun]] = {}
        self._spent: dict[str, dict[str, float]] = {}  # by clients of runs that are not open
        self._is_stopping = False

    def at_work(self) -> Iterator[HostedRun]:
        """Yield the runs that answer, by age."""
        for name in self._home.state.runs:
            run = self._open.get(name)
            if run is not None and run.is_ready:
                yield run

    def is_open(self, name: str) -> bool:
        """Return whether a run is open."""
        return name in self._open

    def problem_of(self, name: str) -> str | None:
        """Return why a run is not served; None if it is, or can be."""
        run = self._open.get(name)
        return self._failed.get(name) if run is None else run.problem

    async def open_unfinished(self) -> None:
        """Open all runs that are not known to be over; one that fails leaves the others."""
        for name, record in self._home.state.runs.items():
            if not record.is_over:
                try:
                    await self.get(name)
                except (OffbeatError, Refusal):
                    continue  # it is in the log, and in the list of runs

    async def get(self, name: str) -> HostedRun:
        """Return a run, open; ``no-such-run``, or ``stopping`` if it cannot be opened."""
        run = self._open.get(name)
        if run is not None:
            return run
        if self._is_stopping:
            raise Refusal("stopping", "the server is being stopped: try again later", {"Retry-After": "5"})
        if name not in self._home.state.runs:
            raise no_such_run(name)
        if name not in self._opening:
            self._opening[name] = asyncio.create_task(self._opened(name))
        try:
            return await asyncio.shield(self._opening[name])
        except OffbeatError:
            raise Refusal(
                "stopping", f"run {name} cannot be opened: tell the server's operator", {"Retry-After": "30"}
            ) from None
        finally:
            task = self._opening.get(name)
            if task is not None and task.done():
                del self._opening[name]

    async def create(self, name: str, text: str) -> None:
        """Begin a run of this file; ``OffbeatError`` if it cannot be used."""
        if len(self._home.state.runs) >= MOST_RUNS:
            raise Refusal("full", f"this server has {MOST_RUNS} runs already: begin this one on another server")
        with self._prepare(name, text):
            self._home.create(name, text)  # a kill from here on leaves a run that begins at the next start
        await self._home.log_writer.wait_until_durable()
        await self.get(name)
        self.note_change()

    def note_change(self) -> None:
        """Let sites that wait for work look for other runs."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def keep_watch(self) -> None:
        """Note which runs are over, and close those that nobody asks for; never returns."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for run in list(self._open.values()):
                if not run.is_ready:
                    continue
                if self._home.state.runs[run.name].is_over != run.is_over:
                    self._home.note_end(run.name, is_over=run.is_over)
                    self.note_change()
                idle = time.monotonic() - run.last_used > _IDLE_SECONDS
                if run.is_over and idle and not run.under_way and not run.accounts.has_own_clients:
                    del self._open[run.name]
                    await run.close()

    def stop(self) -> None:
        """Give out no more work in any run."""
        self._is_stopping = True
        self.note_change()
        for run in self._open.values():
            run.stop()

    async def close(self) -> None:
        """Close all runs; no request is under way."""
        self._is_stopping = True
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await asyncio.gather(*(run.close() for run in self._open.values()))

    def _spent_elsewhere(self, but: str, identity: str) -> float:
        """Return what a client has spent in all other runs; ``busy`` if that is unknown."""
        return sum(self._spent_in(name, identity) for name in self._home.state.runs if name != but)

    def _spent_in(self, name: str, identity: str) -> float:
        run = self._open.get(name)
        if run is not None and run.is_ready:
            return run.spent(int(identity.removeprefix(HOSTED))) if identity.startswith(HOSTED) else 0.0
        if name not in self._spent:
            folder = self._home.folder / RUNS / name
            try:
                is_begun = (folder / "offbeat.sqlite").exists()
                self._spent[name] = spent_by_identity([folder]) if is_begun else {}
            except OffbeatError as error:
                raise Refusal("busy", f"run {name} cannot be read, so what clients spent there is not known") from error
        return self._spent[name].get(identity, 0.0)

    async def _opened(self, name: str) -> HostedRun:
        run = HostedRun(name, self._home, self._connections, self._url, partial(self._spent_elsewhere, name))
        try:
            await run.open(self._prepare(name, self._home.state.runs[name].text))
        except OffbeatError as error:
            self._failed[name] = str(error)
            event("run_not_opened", logging.ERROR, of=name, problem=str(error))
            raise
        self._failed.pop(name, None)
        self._spent.pop(name, None)
        self._open[name] = run
        return run
