"""The queries of a coordinator, which do not change anything."""

from collections.abc import Iterable, Iterator

from offbeat.algorithms.components import Algorithm
from offbeat.coordinator.assignments import VisitTable
from offbeat.coordinator.calls import Assignment, Statistics
from offbeat.coordinator.candidates import Candidates
from offbeat.coordinator.leases import Leases
from offbeat.coordinator.transitions import Transitions


class Queries:
    """The part of a coordinator that only reads.

    Attributes:
        algorithm: The run's algorithm.
        waits_for_examples: Whether there is no work before the clients' numbers of examples are known.
    """

    algorithm: Algorithm
    waits_for_examples: bool
    _candidates: Candidates
    _leases: Leases
    _max_staleness: int | None
    _transitions: Transitions
    _visits: VisitTable

    @property
    def statistics(self) -> Statistics:
        """The numbers of visits so far."""
        return self._transitions.statistics

    @property
    def has_work(self) -> bool:
        """True if ``assign`` would give work to a client now."""
        return not self.waits_for_examples and bool(self._candidates.pool) and self.algorithm.slots() > 0

    @property
    def may_refuse(self) -> bool:
        """True if an update may come too late to count.

        If False, ``offer`` returns None for every open visit.
        """
        return self._max_staleness is not None or not self.algorithm.wants_all

    def wants_speed(self, client: int) -> bool:
        """Return whether the algorithm needs the client's speed to be measured.

        It does if it plans by speed and the client has had no visit that would show its speed. A run that waits for
        its clients' examples does not, since the algorithm will start anew.
        """
        return self.algorithm.measures and not self.waits_for_examples and self._visits.latest(client) < 0

    def assignment(self, client: int) -> Assignment | None:
        """Return the client's open assignment.

        It serves, for instance, a client that lost the answer to its call.
        """
        return self._visits.assignment(client)

    def unfinished(self) -> Iterator[Assignment]:
        """Return all open assignments."""
        return (assignment for assignment, _ in self._visits.open_assignments())

    def urgent(self) -> list[Assignment]:
        """Return the assignments whose clients should upload a partial update now."""
        return self._assignments_of(self.algorithm.urgent())

    def cancelled(self) -> list[Assignment]:
        """Return the assignments whose updates are not wanted any more.

        Their clients should stop.
        """
        return self._assignments_of(self.algorithm.cancelled())

    def _assignments_of(self, clients: Iterable[int]) -> list[Assignment]:
        return [assignment for assignment in map(self._visits.assignment, clients) if assignment is not None]

    def is_open(self, client: int) -> bool:
        """Return whether the client has a slot: an open visit whose lease has not ended."""
        return self._visits.has_slot(client)

    def is_wanted(self, client: int, visit: int) -> bool:
        """Return whether the update of a visit would count now."""
        assignment = self._visits.assignment(client, visit)
        return assignment is not None and self._counts_now(assignment)

    def _counts_now(self, assignment: Assignment) -> bool:
        client, _, version, *_ = assignment
        too_stale = self._max_staleness is not None and self.algorithm.version - version > self._max_staleness
        return not too_stale and self.algorithm.wants(client, version)

    def remembers(self, client: int, visit: int) -> bool:
        """Return whether the receipt of a closed visit is known.

        It is known unless the visit is older than the last that counted.
        """
        return visit >= self._visits.counted_visit(client)

    def has_counted(self, client: int, visit: int) -> bool:
        """Return whether a visit counted, if its receipt is known."""
        receipt = self._visits.receipt(client, visit)
        return receipt is not None and receipt.counted

    def next_lapse(self) -> float:
        """Return when ``lapse`` is to be called next, in seconds.

        Infinity if nothing is due.
        """
        return min(self._leases.next_seconds(), self.algorithm.deadline())
