"""The coordinator's clock, and the guard against a run that would never end."""

import math
from typing import Any

from offbeat_core.errors import OffbeatError, setting

from offbeat.algorithms.components import Algorithm
from offbeat.coordinator import Coordinator
from offbeat.simulation.attendance import Attendance
from offbeat.simulation.events import EventQueue, Kind

LONGEST_GAP = 365 * 86_400.0
"""The longest virtual time in which no work begins or ends, in seconds."""

CLOCK_ADVICE = (
    "times in population.availability are seconds since the start of the run; subtract the first time from those of "
    "another clock, divide milliseconds by 1,000"
)

_MAX_IN_VAIN = 10_000
_MAX_PASSIVE = 100  # ticks and evaluations in a row before the guard looks for the next other event


class StallGuard:
    """A guard that ends a run without events or without counted updates.

    A run with a finite ``end_seconds`` may wait for that time without events. No run waits longer than ``LONGEST_GAP``,
    however often it evaluates.
    """

    def __init__(self, coordinator: Coordinator, queue: EventQueue, *, end_seconds: float) -> None:
        self._coordinator = coordinator
        self._algorithm = coordinator.algorithm
        self._queue = queue
        self._end_seconds = end_seconds
        self._passive = 0  # ticks and evaluations in a row
        self._last_work = 0.0  # virtual seconds
        self._in_vain = 0  # visits that have ended, and ticks, since an update counted

    def check_future(self, now: float) -> None:
        """Raise ``OffbeatError`` if nothing can end the run, or not for a long time."""
        if self._queue.is_next_passive:
            self._passive += 1
            if self._passive == _MAX_PASSIVE:
                self._check_gap(self._queue.next_active_seconds())
        else:
            self._passive = 0
            self._check_gap(self._queue.next_seconds)
            if self._queue.at_work:
                self._last_work = self._queue.next_seconds
        if self._queue.at_work or self._end_seconds < math.inf or self._algorithm.period is not None:
            return
        if self._queue.is_passive or self._waits_for_lost_clients() or self._nobody_may_come():
            if self._coordinator.participation is not None:
                raise OffbeatError(
                    f"nothing is left to happen at {now:g} virtual seconds: no client may take part any more; end the "
                    "run earlier by [stop], raise privacy.max_participations or lower privacy.min_separation"
                )
            raise OffbeatError(
                f"nothing is left to happen at {now:g} virtual seconds: every client stays offline, or the server "
                f"waits for lost clients; set {setting('stop.virtual_seconds')} or server.lease_seconds"
            )

    def _check_gap(self, next_seconds: float) -> None:
        """Raise ``OffbeatError`` if the next work is too far from the last.

        Ticks and evaluations are not work.
        """
        until = min(next_seconds, self._end_seconds)
        if LONGEST_GAP < until - self._last_work < math.inf:
            raise OffbeatError(
                f"no work begins or ends from {self._last_work:.10g} to {until:.10g} virtual seconds, longer than "
                f"{LONGEST_GAP / 86_400:g} days: {CLOCK_ADVICE}; or end the run earlier by [stop]"
            )

    def note_visit(self, now: float, outcome: str) -> None:
        """Record that a visit has ended.

        Raises ``OffbeatError`` if too many visits have ended since an update counted.
        """
        if outcome == "counted":
            self._in_vain = 0
        else:
            self._in_vain += 1
            self._check_progress(now)

    def note_tick(self, now: float) -> None:
        """Record that a period has passed.

        It counts as in vain only if no other event is left. Raises ``OffbeatError`` if too many periods have passed
        since an update counted.
        """
        self._in_vain += self._queue.is_passive or self._waits_for_lost_clients() or self._nobody_may_come()
        self._check_progress(now)

    def _waits_for_lost_clients(self) -> bool:
        """Return whether clients that are not at work hold every slot."""
        return not self._queue.at_work and self._algorithm.slots() <= 0

    def _nobody_may_come(self) -> bool:
        """Return whether nobody is at work, and no client may take part now."""
        participation = self._coordinator.participation
        if participation is None or self._queue.at_work:
            return False
        return not any(participation.allows(client, self._algorithm) for client in range(self._coordinator.clients))

    def _check_progress(self, now: float) -> None:
        if self._in_vain > max(_MAX_IN_VAIN, 10 * self._coordinator.clients):
            raise OffbeatError(
                f"no update counted in the last {self._in_vain} visits and ticks, up to {now:g} virtual seconds: "
                "change server.lease_seconds, server.max_staleness or population.availability"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the visits and ticks in vain, and the time of the last work."""
        return {"in_vain": self._in_vain, "last_work": self._last_work}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._in_vain = state["in_vain"]
        self._last_work = state["last_work"]


# Sums of floats that are this near to a tick, relatively, would be equal to it but for rounding.
_SAME_INSTANT = 1e-12


class Clock:
    """Calls the coordinator when a lease, a period or a deadline ends."""

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
