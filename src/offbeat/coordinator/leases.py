"""Leases: until when a slot is kept for a silent client."""

import heapq
import math
from collections.abc import Iterable

from offbeat.coordinator.calls import Assignment

_MIN_RENEWAL = 0.05  # as a share of a lease


class Leases:
    """The ends of leases in order, and the deadline of the open round.

    At the deadline the round stops waiting for free places to be taken.

    Args:
        lease_seconds: How long a slot is kept for a silent client.
        max_visit_seconds: How long a slot is kept at most, however often its lease is renewed.

    Attributes:
        round_deadline: When the last lease of the open round ends; infinite without rounds.
    """

    def __init__(self, lease_seconds: float, max_visit_seconds: float) -> None:
        self.round_deadline = math.inf
        self._lease_seconds = lease_seconds
        self._max_visit_seconds = max_visit_seconds
        self._heap: list[tuple[float, int, int]] = []  # end, client, visit; also of leases that were renewed or over

    def new(self, now: float) -> tuple[float, float]:
        """Return the ends of a lease that begins now: without renewal, and at the latest."""
        visit_until = now + self._max_visit_seconds
        return min(now + self._lease_seconds, visit_until), visit_until

    def renewed(self, now: float, assignment: Assignment) -> float | None:
        """Return the end of a renewed lease; None if it is hardly later.

        With None the old lease stays, so that frequent calls make little work.
        """
        lease_until = min(now + self._lease_seconds, assignment.visit_until)
        is_later = lease_until - assignment.lease_until > _MIN_RENEWAL * self._lease_seconds
        return lease_until if is_later else None

    def expect_end(self, lease_until: float, client: int, visit: int, *, of_round: bool) -> None:
        """Enter the end of a lease, which may be the last one of the open round."""
        heapq.heappush(self._heap, (lease_until, client, visit))
        if of_round:
            # Renewed at its longest duration, a lease may end before one that began later.
            is_first = math.isinf(self.round_deadline)
            self.round_deadline = lease_until if is_first else max(self.round_deadline, lease_until)

    def first_ended(self, now: float) -> tuple[float, int, int] | None:
        """Return the earliest end, with its client and visit; None after ``now``."""
        return self._heap[0] if self._heap and self._heap[0][0] <= now else None

    def remove_first(self) -> None:
        """Take the earliest end out."""
        heapq.heappop(self._heap)

    def next_seconds(self) -> float:
        """Return the earliest time at which a lease or the open round ends.

        Infinity if none does.
        """
        return min(self._heap[0][0] if self._heap else math.inf, self.round_deadline)

    def load(self, assignments: Iterable[Assignment], round_deadline: float) -> None:
        """Resume with the leases of open assignments."""
        self.round_deadline = round_deadline
        self._heap = [(one.lease_until, one.client, one.visit) for one in assignments if one.lease_until < math.inf]
        heapq.heapify(self._heap)
