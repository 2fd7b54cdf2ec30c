"""The run's progress: a line in the log every minute, and the last hour's counts."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping

from offbeat_core.serving.console_log import event

from offbeat.service.engine.engine import Engine
from offbeat.service.refusal import KINDS

_SECONDS = 60.0
_LOW_BUDGET = 0.9  # of all participations, in a private run
_UPDATE_REFUSED = 422  # the status of what is wrong with an update
_MOST_SILENT = 20  # clients that a line names


class LastHour:
    """The updates of the last hour, or since the server's start.

    Args:
        count: Returns the counted and the unused updates so far, by these names.
        refusals: Returns the refused requests so far, by kind.
    """

    def __init__(self, count: Callable[[], Mapping[str, int]], refusals: Callable[[], Mapping[str, int]]) -> None:
        self._count = count
        self._refusals = refusals
        self._minutes = deque([self._now()], maxlen=61)

    def note(self) -> None:
        """Record a minute."""
        self._minutes.append(self._now())

    def counts(self) -> tuple[int, int, dict[str, int]]:
        """Return the counted and the unused updates, and the refused ones by kind."""
        (counted, unused, refused), (before, unused_before, refused_before) = self._now(), self._minutes[0]
        return counted - before, unused - unused_before, dict(refused - refused_before)

    def _now(self) -> tuple[int, int, Counter[str]]:
        of_updates = {kind: number for kind, number in self._refusals().items() if KINDS[kind] == _UPDATE_REFUSED}
        counts = self._count()
        return counts["counted"], counts["unused"], Counter(of_updates)


class ProgressLog:
    """Logs what clients did since the last line; nothing if they did nothing.

    ``refusals`` returns the refused requests so far, by kind.
    """

    def __init__(self, engine: Engine, refusals: Callable[[], Mapping[str, int]]) -> None:
        self._engine = engine
        self.hour = LastHour(self._counts, refusals)
        self._last = self._counts()
        self._is_budget_low = False  # which is logged once

    async def run(self) -> None:
        """Log every minute; never returns."""
        while True:
            await asyncio.sleep(_SECONDS)
            self.report()
            self.hour.note()

    def report(self) -> None:
        """Log the updates since the last line, and the clients that fell silent."""
        engine, now = self._engine, self._counts()
        if now == self._last:
            return
        new = {name: now[name] - self._last[name] for name in ("counted", "unused", "lost")}
        self._last = now
        silent, engine.calls.silent = sorted(engine.calls.silent)[:_MOST_SILENT], set()
        event(
            "progress",
            version=engine.coordinator.algorithm.version,
            **new,
            at_work=now["assigned"] - now["counted"] - now["unused"] - now["lost"],
            waiting=len(engine.waiting),
        )
        if silent:
            event("clients_silent", clients=silent)
        self._report_budget()

    def _report_budget(self) -> None:
        """Log that most of the sums in which clients may take part are spent."""
        participation = self._engine.coordinator.participation
        if participation is None or self._is_budget_low:
            return
        counts = participation.counts()
        share = sum(counts) / (participation.limit * len(counts))
        if share >= _LOW_BUDGET:
            self._is_budget_low = True
            event("budget_low", logging.WARNING, spent=round(share, 3))

    def _counts(self) -> dict[str, int]:
        statistics = self._engine.coordinator.statistics
        return {name: getattr(statistics, name) for name in ("assigned", "counted", "unused", "lost")}
