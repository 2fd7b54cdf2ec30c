"""A coordinator on the wall clock."""

import math
import time
from collections.abc import Callable

from offbeat.coordinator import Coordinator


class LiveRun:
    """A coordinator, with the time and the end of its run.

    Args:
        coordinator: The coordinator.
        now: Seconds that the run has taken so far, without the time when no server ran.
        stop_versions: The run ends at this version; infinity for never.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        now: float = 0.0,
        stop_versions: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.coordinator = coordinator
        self._stop_versions = stop_versions
        self._clock = clock
        self._start = clock() - now

    @property
    def now(self) -> float:
        """Seconds since the run began, without the time when no server ran."""
        return self._clock() - self._start

    @property
    def is_finished(self) -> bool:
        """Return whether the run is over."""
        return self.coordinator.algorithm.version >= self._stop_versions

    def needed_versions(self) -> set[int]:
        """Return the newest version and those that visits began from and still need."""
        algorithm, coordinator = self.coordinator.algorithm, self.coordinator
        return {algorithm.version} | {
            assignment.version
            for assignment in coordinator.visits.open_assignments()
            if algorithm.needs_base or coordinator.visits.has_slot(assignment.client)
        }
