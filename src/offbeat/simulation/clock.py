"""The coordinator's clock: leases, the algorithm's deadline and its periods."""

import math
from typing import Any

from offbeat.algorithms.components import Algorithm
from offbeat.coordinator import Coordinator
from offbeat.simulation.attendance import Attendance
from offbeat.simulation.events import EventQueue, Kind
from offbeat.simulation.stall_guard import StallGuard

# Sums of floats that are this near to a tick, relatively, would be equal to it but for rounding.
_SAME_INSTANT = 1e-12


class Clock:
    """Calls the coordinator when a time has come that it waits for."""

    def __init__(self, coordinator: Coordinator, queue: EventQueue, attendance: Attendance, guard: StallGuard) -> None:
        self._coordinator = coordinator
        self._algorithm = coordinator.algorithm
        self._has_deadline = type(self._algorithm).deadline is not Algorithm.deadline
        self._queue = queue
        self._attendance = attendance
        self._guard = guard
        self._deadline = math.inf  # the latest deadline that was put into the queue

    def start(self) -> None:
        """Put the first tick into the queue, where there are periods."""
        if self._algorithm.period is not None:
            self._queue.put(self._algorithm.period, Kind.TICK, 1)

    def expect_lapse(self, seconds: float) -> None:
        """Put the end of leases into the queue, unless it is infinite."""
        if seconds < math.inf:
            self._queue.put(seconds, Kind.LAPSE)

    def expect_deadline(self, now: float) -> None:
        """Put the algorithm's deadline into the queue if it has moved."""
        if not self._has_deadline:
            return
        deadline = self._algorithm.deadline()
        if deadline < math.inf and deadline != self._deadline:
            self._deadline = deadline
            self._queue.put(max(deadline, now), Kind.LAPSE)

    def lapse(self, now: float, _: int) -> None:
        """Let leases end, and the deadline pass."""
        if self._coordinator.lapse(now) and self._deadline <= now:
            self._deadline = math.inf  # the next one may be at the same instant
        self._attendance.assignment_due = True

    def tick(self, now: float, number: int) -> None:
        """Let the period of this number end, counted from 1."""
        assert self._algorithm.period is not None
        self._coordinator.tick(now)
        self._guard.note_tick(now)
        self._queue.put((number + 1) * self._algorithm.period, Kind.TICK, number + 1)
        self._attendance.assignment_due = True

    def state_dict(self) -> dict[str, Any]:
        """Return the deadline that is in the queue."""
        return {"deadline": self._deadline}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._deadline = state["deadline"]


def at_tick(seconds: float, period: float, now: float) -> float:
    """Return the tick that ``seconds`` misses by rounding only, else ``seconds``.

    A tick before ``now`` has passed and is not returned.
    """
    tick = round(seconds / period) * period
    return tick if now <= tick and abs(seconds - tick) <= _SAME_INSTANT * seconds else seconds
