"""The time of a visit: its lease, and whether a late update counts."""

import heapq
import math
from collections.abc import Iterable

from offbeat.algorithms.components import Algorithm
from offbeat.coordinator.visits import Assignment

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


class LateUpdates:
    """The rule that decides which late updates count.

    The update of an open visit counts if the algorithm wants it and it is not too stale. The end of the visit's lease
    does not matter.

    Args:
        algorithm: The run's algorithm.
        max_staleness: The largest staleness at which an update counts; None for any.

    Raises:
        ValueError: The algorithm plans by measured speed, and ``max_staleness`` is set.
    """

    def __init__(self, algorithm: Algorithm, max_staleness: int | None) -> None:
        if max_staleness is not None and algorithm.measures:
            raise ValueError(
                f"{algorithm.name} plans each client's work by how long it took, and would never hear of one that is "
                "always too stale: leave server.max_staleness out"
            )
        self._algorithm = algorithm
        self.max_staleness = max_staleness

    @property
    def may_refuse(self) -> bool:
        """True if an update may come too late to count."""
        return self.max_staleness is not None or not self._algorithm.wants_all

    def counts(self, assignment: Assignment) -> bool:
        """Return whether the update of an open visit would count now."""
        client, _, version, *_ = assignment
        is_too_stale = self.max_staleness is not None and self._algorithm.version - version > self.max_staleness
        return not is_too_stale and self._algorithm.wants(client, version)
