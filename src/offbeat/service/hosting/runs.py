"""The runs of a server: open while at work, later on request."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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
_RETRY_SECONDS = 30.0  # until a run that has failed is opened again, then twice as long, …
_LONGEST_SECONDS = 3600.0  # … up to this


@dataclass
class _Failure:
    """The reason why a run is not open, and when to try again, in monotonic seconds."""

    problem: str
    pause: float
    retry_at: float


class Runs:
    """Opens and closes the runs that ``home`` lists.

    Attributes:
        changed: Set and replaced when a site may have other runs than before.
        is_stopping: Whether no more work is given out.
    """

    def __init__(self, home: Home, prepare: Prepare, connections: Connections, url: str) -> None:
        self.changed = asyncio.Event()
        self.is_stopping = False
        self._home = home
        self._prepare = prepare
        self._connections = connections
        self._url = url
        self._open: dict[str, HostedRun] = {}
        self._failed: dict[str, _Failure] = {}  # those before, too, of runs that are open again
        self._opening: dict[str, asyncio.Task[HostedRun]] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._spent: dict[str, dict[str, float]] = {}  # by clients of runs that are not open

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
        failure = self._failed.get(name)
        return None if failure is None or name in self._open else failure.problem

    async def open_unfinished(self) -> None:
        """Open all runs that are not known to be over; one that fails leaves the others."""
        for name, record in list(self._home.state.runs.items()):
            failure = self._failed.get(name)
            is_due = failure is None or time.monotonic() >= failure.retry_at
            if is_due and not record.is_over and name not in self._open:
                with suppress(Refusal):  # it is in the log, and in the list of runs
                    await self.get(name)

    async def get(self, name: str) -> HostedRun:
        """Return a run, open; ``no-such-run``, or ``stopping`` if it cannot be opened."""
        run = self._open.get(name)
        if run is not None:
            return run
        if self.is_stopping:
            raise Refusal("stopping", "the server is being stopped: try again later", {"Retry-After": "5"})
        if name not in self._home.state.runs:
            raise no_such_run(name)
        failure = self._failed.get(name)
        if failure is not None and time.monotonic() < failure.retry_at:
            raise _has_failed(name)
        if name not in self._opening:
            self._opening[name] = asyncio.create_task(self._opened(name))
        return await asyncio.shield(self._opening[name])

    async def create(self, name: str, text: str) -> None:
        """Begin a run of this file; ``OffbeatError`` if it cannot be used."""
        if len(self._home.state.runs) >= MOST_RUNS:
            raise Refusal("full", f"this server has {MOST_RUNS} runs already: begin this one on another server")
        with self._prepare(name, text):
            self._home.create(name, text)  # a kill from here on leaves a run that begins at the next start
        await self._home.log_writer.wait_until_durable()
        await self.get(name)

    def note_change(self) -> None:
        """Let sites that wait for work look for other runs."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def keep_watch(self) -> None:
        """Note which runs are over, close and open runs; never returns.

        Those are closed that are over and that nobody asks for, and those opened that have failed.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for run in list(self._open.values()):
                if not run.is_ready:
                    continue
                if self._home.state.runs[run.name].is_over != run.may_rest:
                    self._home.note_end(run.name, is_over=run.may_rest)
                    self.note_change()
                idle = time.monotonic() - run.last_used > _IDLE_SECONDS
                if idle and run.may_rest and not run.under_way:
                    del self._open[run.name]
                    self._closing[run.name] = asyncio.create_task(run.close())
                    await self._closing[run.name]
                    del self._closing[run.name]
            await self.open_unfinished()
            if self._home.disk.problem is not None:
                await self._home.keep_reserve()

    def stop(self) -> None:
        """Give out no more work in any run."""
        self.is_stopping = True
        self.note_change()
        for run in self._open.values():
            run.stop()

    async def close(self) -> None:
        """Close all runs; no request is under way."""
        self.is_stopping = True
        await asyncio.gather(*self._opening.values(), *self._closing.values(), return_exceptions=True)
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
        try:
            if (closing := self._closing.get(name)) is not None:
                await asyncio.shield(closing)
            elsewhere = partial(self._spent_elsewhere, name)
            run = HostedRun(name, self._home, self._connections, self._url, elsewhere, self._note_failure)
            try:
                await run.open(self._prepare(name, self._home.state.runs[name].text))
            except Exception as error:
                self._note_failure(name, error)
                raise _has_failed(name) from None
            self._spent.pop(name, None)
            self._open[name] = run
            await run.forget_revoked()
            self.note_change()
            return run
        finally:
            del self._opening[name]

    def _note_failure(self, name: str, error: BaseException) -> None:
        """Note that a run is not open any more; it is opened again later."""
        self._open.pop(name, None)
        problem = str(error) if isinstance(error, OffbeatError) else f"{type(error).__name__}: {error}"
        event("run_failed", logging.ERROR, of=name, problem=problem)
        before, now = self._failed.get(name), time.monotonic()
        is_first = before is None or now - before.retry_at > _LONGEST_SECONDS
        pause = _RETRY_SECONDS if before is None or is_first else min(2 * before.pause, _LONGEST_SECONDS)
        self._failed[name] = _Failure(problem, pause, now + pause)


def _has_failed(name: str) -> Refusal:
    return Refusal("stopping", f"run {name} has failed: tell the server's operator", {"Retry-After": "30"})
