"""The line about the run's progress in the server's log, once a minute."""

import asyncio
import logging

from offbeat_core.serving.console_log import event

from offbeat.service.engine.engine import Engine

_SECONDS = 60.0
_LOW_BUDGET = 0.9  # of all participations, in a private run
_MOST_SILENT = 20  # clients that a line names


class ProgressLog:
    """Logs what clients did since the last line; nothing if they did nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last = self._counts()
        self._is_budget_low = False  # which is logged once

    async def run(self) -> None:
        """Log every minute; never returns."""
        while True:
            await asyncio.sleep(_SECONDS)
            self.report()

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
