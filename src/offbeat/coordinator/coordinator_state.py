"""The coordinator's state, and the steps that change all of its parts together."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from offbeat.algorithms.components import Algorithm, Update, UpdateRefusedError
from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator.candidates import Candidates
from offbeat.coordinator.leases import Leases
from offbeat.coordinator.visit_plans import VisitPlans
from offbeat.coordinator.visit_states import VisitCall
from offbeat.coordinator.visits import Assignment, Receipt, VisitTable


@dataclass
class Statistics:
    """Numbers of visits so far.

    ``assigned − counted − unused − lost`` visits are open.
    """

    assigned: int = 0
    counted: int = 0
    unused: int = 0  # arrived or offered, but late, unwanted or refused
    lost: int = 0  # have not come: the lease lapsed, the client was given other work, or the run finished
    staleness_sum: int = 0  # over the counted ones
    staleness_max: int = 0


class CoordinatorState:
    """The parts of a coordinator's state, which a step changes together.

    Each step asks the algorithm first. If that raises, the step has not happened.

    Attributes:
        algorithm: Started.
        candidates: The clients that may be assigned.
        leases: The ends of leases.
        visits: The visits.
        plans: The plans of visits.
        statistics: The numbers of visits.
    """

    def __init__(
        self, algorithm: Algorithm, candidates: Candidates, leases: Leases, visits: VisitTable, plans: VisitPlans
    ) -> None:
        self.algorithm = algorithm
        self.candidates = candidates
        self.leases = leases
        self.visits = visits
        self.plans = plans
        self.statistics = Statistics()

    def assign(self, now: float, client: int) -> Assignment:
        """Open a visit of a client that was taken out of the pool."""
        try:
            plan = self.algorithm.assign(client, self.plans.plan(client, self.algorithm.version))
        except BaseException:
            self.candidates.put_back(client)
            raise
        lease_until, visit_until = self.leases.new(now)
        self.statistics.assigned += 1
        assignment = self.visits.open(client, self.algorithm.version, plan, lease_until, visit_until)
        self.candidates.note_assigned(client)
        if lease_until < math.inf:
            self.expect_end(assignment)
        return assignment

    def expect_end(self, assignment: Assignment) -> None:
        """Enter the end of a new or renewed lease."""
        of_round = self.candidates.has_rounds and self.algorithm.period is None
        self.leases.expect_end(assignment.lease_until, assignment.client, assignment.visit, of_round=of_round)

    def close(self, update: Update, *, counts: bool) -> Receipt:
        """Close a visit with its update.

        The update counts unless it comes too late or the algorithm refuses it.

        Raises:
            ValueError: The update is malformed; nothing has changed.
        """
        if counts:
            try:
                return self._count(update)
            except UpdateRefusedError:
                pass
        return self.refuse(update.client, update.version, VisitCall.RECEIVE)

    def _count(self, update: Update) -> Receipt:
        staleness = self.algorithm.version - update.version
        number = self.algorithm.released + 1
        receipt = Receipt(True, staleness, self.algorithm.receive(update))
        statistics = self.statistics
        statistics.lost -= self.visits.close(update.client, receipt)
        statistics.counted += 1
        statistics.staleness_sum += staleness
        statistics.staleness_max = max(statistics.staleness_max, staleness)
        self.candidates.note_counted(update, number)
        self.follow_round()
        return receipt

    def refuse(self, client: int, version: int, call: VisitCall) -> Receipt:
        """Close the visit of a client without its update, and free its slot.

        Args:
            client: The visit's client.
            version: The version that the visit works from.
            call: ``RECEIVE`` or ``OFFER``.
        """
        staleness = self.algorithm.version - version
        receipt = Receipt(False, staleness, self.algorithm.drop(client, version))
        self.statistics.lost -= self.visits.close(client, receipt, call)
        self.statistics.unused += 1
        self.follow_round()
        return receipt

    def closed_receipt(self, client: int, visit: int) -> Receipt:
        """Return the receipt of a closed visit.

        If the receipt is no longer known, the answer is that the visit did not count.
        """
        staleness = self.algorithm.version - self.visits.version(client)
        return self.visits.receipt(client, visit) or Receipt(False, staleness, False)

    def lose(self, client: int, call: VisitCall) -> bool:
        """Free the slot of an open visit; return whether that made a new version.

        The visit stays open; ``call`` is ``DROP`` or ``LAPSE``.
        """
        new_version = self.algorithm.drop(client, self.visits.version(client))
        self.visits.lapse(client, call)
        self.statistics.lost += 1
        self.follow_round()
        return new_version

    def finish(self) -> None:
        """Close all open visits.

        The algorithm keeps their slots until ``free_slot``, so that it does not make a version of a part of a round.
        """
        self.statistics.lost += self.visits.finish(self.algorithm.version)

    def free_slot(self, client: int) -> bool:
        """Free a slot that was kept; return whether that made a new version."""
        new_version = self.algorithm.drop(client, self.visits.version(client))
        self.visits.free_slot(client)
        self.follow_round()
        return new_version

    def ended_leases(self, now: float) -> Iterator[Assignment]:
        """Yield the open visits whose leases have ended.

        Call ``lose`` for each before asking for the next.
        """
        while (first := self.leases.first_ended(now)) is not None:
            lease_until, client, visit = first
            assignment = self.visits.assignment(client, visit)
            if assignment and assignment.lease_until == lease_until and self.visits.has_slot(client):
                yield assignment
            self.leases.remove_first()

    def tick(self) -> bool:
        """Let a period or a deadline pass; return whether that made a new version."""
        released = self.algorithm.released
        new_version = self.algorithm.tick()
        if self.algorithm.released > released:
            self.candidates.note_numbers(())  # of updates that it has left for later
        self.follow_round()
        return new_version

    def follow_round(self) -> None:
        """Begin the round and the sum that the algorithm has opened, if it has."""
        if self.candidates.open_round():
            self.leases.round_deadline = math.inf
        self.candidates.open_sum()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of everything but the algorithm."""
        return {
            **prefixed("statistics", asdict(self.statistics)),
            **self.candidates.state_dict(),
            "round_deadline": self.leases.round_deadline,
            "steps": list(self.plans.noted.items()),
            **prefixed("visits", self.visits.state_dict(self.plans)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, after the algorithm has."""
        self.statistics = Statistics(**under("statistics", state))
        self.candidates.load_state_dict(state)
        self.plans.noted.update(state["steps"])
        self.visits.load_state_dict(under("visits", state), self.plans)
        held = [one for one in self.visits.open_assignments() if self.visits.has_slot(one.client)]
        self.leases.load(held, state["round_deadline"])
