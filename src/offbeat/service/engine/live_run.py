"""A coordinator on the wall clock, and its alarm."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from offbeat_core.serving.console_log import event

from offbeat.coordinator import Coordinator
from offbeat.early_stop import EarlyStop
from offbeat.service.engine.best_keeper import BestKeeper
from offbeat.service.live.run_history import RunHistory
from offbeat.service.store.server_state import RunState


class Alarm:
    """The sleep of a timer; a ring while it is awake ends its next sleep at once."""

    def __init__(self) -> None:
        self._rings = asyncio.Event()
        self._due = -math.inf  # nothing is earlier for a timer that is awake

    def expect(self, due: float) -> None:
        """End the sleep if it would last beyond ``due``, in the run's seconds."""
        if due < self._due:
            self.ring()

    def ring(self) -> None:
        """End the sleep."""
        self._rings.set()

    async def sleep(self, due: float, seconds: float) -> None:
        """Sleep for some seconds, until something is due; shorter after a ring."""
        self._due = due
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._rings.wait()
        finally:
            self._due = -math.inf
        self._rings.clear()


class LiveRun:
    """A coordinator, with the time and the end of its run.

    Args:
        coordinator: The coordinator.
        now: Seconds that the run has taken so far, without the time when no server ran.
        stop_versions: The run ends at this version, or a later one that ``state`` has; infinity for never.
        state: Whether nobody gets new work, and whether the run was extended; None for neither.
        early_stop: The end by a metric; None if there is none.
        clock: Monotonic seconds.
        history: The versions and evaluations so far; None for a new run.

    Attributes:
        best: Keeps the best evaluated version; None if none is kept.
        alarm: Wakes the timer when something is due earlier than it expects.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        now: float = 0.0,
        stop_versions: float = math.inf,
        state: RunState | None = None,
        early_stop: EarlyStop | None = None,
        clock: Callable[[], float] = time.monotonic,
        history: RunHistory | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.best: BestKeeper | None = None
        self.alarm = Alarm()
        self.history = RunHistory() if history is None else history
        self.state = RunState() if state is None else state
        self._stop_versions = stop_versions
        self._early_stop = early_stop
        self._clock = clock
        self._start = clock() - now
        self._was_finished = False

    @property
    def now(self) -> float:
        """Seconds since the run began, without the time when no server ran."""
        return self._clock() - self._start

    @property
    def is_paused(self) -> bool:
        """Return whether nobody gets new work."""
        return self.state.is_paused

    @property
    def stop_versions(self) -> float:
        """The version at which the run ends; infinity for never."""
        return self.state.end_of(self._stop_versions)

    @property
    def has_ended_early(self) -> bool:
        """Return whether a metric has ended the run."""
        return self._early_stop is not None and self._early_stop.is_reached

    @property
    def is_finished(self) -> bool:
        """Return whether the run is over."""
        return self.coordinator.algorithm.version >= self.stop_versions or self.has_ended_early

    def close_visits(self) -> None:
        """Close a finished run's visits, so that no answer changes once it is extended."""
        has_ended, self._was_finished = self.is_finished and not self._was_finished, self.is_finished
        if has_ended:
            reason = "stop.target or stop.patience" if self.has_ended_early else "stop.versions"
            if self.state.ended_at is not None:
                reason = "an operator"
            event("run_ended", version=self.coordinator.algorithm.version, reason=reason)
        if self.is_finished:
            self.coordinator.finish(self.now)

    def note_evaluation(self, version: int, values: Mapping[str, Any]) -> None:
        """Take an evaluation of a version, which may end the run."""
        self.history.note_evaluation(version, values)
        if self.best is not None:
            self.best.note(version, values)
        if self._early_stop is not None:
            self._early_stop.note(version, values)
            self.alarm.ring()

    def needed_versions(self) -> set[int]:
        """Return the newest version and those that visits began from and still need."""
        return needed_versions(self.coordinator)


def needed_versions(coordinator: Coordinator) -> set[int]:
    """Return the newest version and those that visits began from and still need."""
    algorithm, visits = coordinator.algorithm, coordinator.visits
    return {algorithm.version} | {
        assignment.version
        for assignment in visits.open_assignments()
        if algorithm.needs_base or visits.has_slot(assignment.client)
    }
