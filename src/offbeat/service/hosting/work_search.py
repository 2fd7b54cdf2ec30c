"""The search for a site's work among the runs of a server."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

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
        had_visit: dict[HostedRun, bool] = {}
        found: HostedRun | None = None
        try:
            found = await self._search(site, asked, without, had_visit)
            client = None if found is None else found.accounts.client_of(site)
        finally:
            await self._leave(site, [run for run, had in had_visit.items() if run is not found and not had])
        if found is None:
            return Work(run=None, client=None, finished=self._is_finished(site))
        self._last[site] = found.name
        return Work(run=found.name, client=client, finished=False)

    async def _search(
        self, site: int, asked: CheckIn, without: Sequence[str], had_visit: dict[HostedRun, bool]
    ) -> HostedRun | None:
        """Return the run with work; None if there is none.

        ``had_visit`` gets whether the site had a visit in each run before.
        """
        end = asyncio.get_running_loop().time() + asked.wait_seconds
        while not self._runs.is_stopping:
            changed = self._runs.changed
            turns: dict[Turn, HostedRun] = {}
            try:
                for run in await self._admitting(site, without):
                    had_visit.setdefault(run, self._is_visiting(run, site))
                    if any(turn.done() for turn in turns):
                        break  # there is work already
                    found = await self._ask(run, asked)
                    if isinstance(found, asyncio.Future):
                        turns[found] = run
                    elif found:
                        return run
                if self._is_finished(site):
                    break
                if (run := await self._wait(turns, asked, changed, end)) is not None:
                    return run
            finally:
                for turn in turns:
                    turn.cancel()
            if asyncio.get_running_loop().time() >= end or not changed.is_set():
                break
        return None

    async def _leave(self, site: int, runs: Sequence[HostedRun]) -> None:
        """Give up the visits that the site does not learn of."""
        await asyncio.sleep(0)  # until the cancelled turns have left their runs
        for run in runs:
            with suppress(Refusal):
                if self._is_visiting(run, site):
                    await run.give_up(site)

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
        client = run.accounts.client_of(site) if run.is_ready else None
        return client is not None and run.service.service.engine.coordinator.visits.has_slot(client)

    async def _ask(self, run: HostedRun, asked: CheckIn, *, has_waited: bool = False) -> bool | Turn:
        """Return whether the run has something for the site to do, or its turn."""
        try:
            if run.service.service.engine.shares is not None:
                return False  # masked updates need the helper's terms: such a client joins the run itself
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
                    if await self._ask(turns[turn], asked, has_waited=True) is True:
                        return turns[turn]
                    del turns[turn]
            return None
        finally:
            other.cancel()

    def _is_finished(self, site: int) -> bool:
        """Return whether the site has taken part in runs, and all of them are over."""
        names, records = self._home.state.admitted.get(site, set()), self._home.state.runs
        is_over = {run.name: run.is_over for run in self._runs.at_work()}  # the record of one just extended is old
        return bool(names) and all(is_over.get(name, records[name].is_over) for name in names)
