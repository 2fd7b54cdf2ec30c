"""The search for a site's work among the runs of a server."""

import asyncio
from collections.abc import Sequence

from offbeat_core.messages import Work

from offbeat.service.engine.waiting_clients import Turn
from offbeat.service.hosting.home import Home
from offbeat.service.hosting.hosted_run import HostedRun
from offbeat.service.hosting.runs import Runs
from offbeat.service.internal.answers import CheckInAnswer
from offbeat.service.internal.questions import CheckIn
from offbeat.service.refusal import Refusal

_SERVER_PROBLEM = 500  # the first status of refusals that are not the client's business


class WorkSearch:
    """Finds the run in which a site has work, each run in its turn."""

    def __init__(self, home: Home, runs: Runs) -> None:
        self._home = home
        self._runs = runs
        self._last: dict[int, str] = {}  # the run in which each site had work last

    async def find(self, site: int, asked: CheckIn, without: Sequence[str]) -> Work:
        """Return where a site has work; wait for it as long as ``asked`` says.

        The visit is open then, and the site's next check-in there gets it.
        """
        end = asyncio.get_running_loop().time() + asked.wait_seconds
        while True:
            changed = self._runs.changed
            turns: dict[Turn, HostedRun] = {}
            try:
                for run in await self._admitting(site, without):
                    found = await self._ask(run, asked)
                    if isinstance(found, asyncio.Future):
                        turns[found] = run
                    elif found:
                        return await self._work(site, run)
                if self._is_finished(site):
                    return Work(run=None, client=None, finished=True)
                if (run := await self._wait(turns, asked, changed, end)) is not None:
                    return await self._work(site, run)
            finally:
                for turn in turns:
                    turn.cancel()
            if asyncio.get_running_loop().time() >= end or not changed.is_set():
                return Work(run=None, client=None, finished=self._is_finished(site))

    async def _admitting(self, site: int, without: Sequence[str]) -> list[HostedRun]:
        """Return the site's runs in the order in which they are asked."""
        admitting: list[HostedRun] = []
        for run in list(self._runs.at_work()):
            try:
                if run.name not in without and await run.admit(site) is not None:
                    admitting.append(run)
            except Refusal as refusal:
                if refusal.status < _SERVER_PROBLEM and refusal.kind != "full":
                    raise
        names = [run.name for run in admitting]
        after = names.index(last) + 1 if (last := self._last.get(site)) in names else 0
        # One after the other, but for those with an open visit, whose update the site may have already.
        ordered = admitting[after:] + admitting[:after]
        return sorted(ordered, key=lambda run: not self._is_visiting(run, site))

    @staticmethod
    def _is_visiting(run: HostedRun, site: int) -> bool:
        client = run.accounts.client_of(site)
        return client is not None and run.service.service.engine.coordinator.visits.has_slot(client)

    async def _ask(self, run: HostedRun, asked: CheckIn, *, has_waited: bool = False) -> bool | Turn:
        """Return whether the run has something for the site to do, or its turn."""
        if run.service.service.engine.shares is not None:
            return False  # masked updates need the helper's terms: such a client joins the run itself
        try:
            found = await run.service.leader.begin(asked, has_waited=has_waited)
        except Refusal as refusal:
            return refusal.status < _SERVER_PROBLEM  # the site asks there, and learns why
        if isinstance(found, CheckInAnswer):
            return found.checked_in.visit is not None or found.checked_in.evaluation is not None
        return found

    async def _wait(
        self, turns: dict[Turn, HostedRun], asked: CheckIn, changed: asyncio.Event, end: float
    ) -> HostedRun | None:
        """Return the first run whose turn brings work.

        None once the time is over, or the runs have changed.
        """
        other = asyncio.ensure_future(changed.wait())
        try:
            while (left := end - asyncio.get_running_loop().time()) > 0 and not other.done():
                await asyncio.wait([*turns, other], timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for turn in [turn for turn in turns if turn.done()]:
                    run = turns.pop(turn)
                    if await self._ask(run, asked, has_waited=True) is True:
                        return run
            return None
        finally:
            other.cancel()

    async def _work(self, site: int, run: HostedRun) -> Work:
        self._last[site] = run.name
        return Work(run=run.name, client=run.accounts.client_of(site), finished=False)

    def _is_finished(self, site: int) -> bool:
        """Return whether the site has taken part in runs, and all of them are over."""
        names, records = self._home.state.admitted.get(site, set()), self._home.state.runs
        is_over = {run.name: run.is_over for run in self._runs.at_work()}  # the record of one just extended is old
        return bool(names) and all(is_over.get(name, records[name].is_over) for name in names)
