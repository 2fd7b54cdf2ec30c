"""The transitions of a visit: assigned, counted, refused, lost."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from torch import Tensor

from offbeat.algorithms.components import Algorithm, Update, UpdateRefusedError
from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator.calls import Assignment, Receipt, Statistics
from offbeat.coordinator.candidates import Candidates
from offbeat.coordinator.leases import Leases
from offbeat.coordinator.visit_plans import VisitPlans
from offbeat.coordinator.visit_states import VisitCall
from offbeat.coordinator.visits import VisitTable


class Transitions:
    """Changes the algorithm, the open visits, the candidates and the leases together.

    Each transition asks the algorithm first. If that raises, the transition has not happened.

    Args:
        algorithm: Started.
        candidates: The clients that may be assigned.
        leases: The ends of leases.
        visits: The visits.
        plans: The plans of visits.

    Attributes:
        statistics: The numbers of transitions.
    """

    def __init__(
        self, algorithm: Algorithm, candidates: Candidates, leases: Leases, visits: VisitTable, plans: VisitPlans
    ) -> None:
        self.statistics = Statistics()
        self._algorithm = algorithm
        self._candidates = candidates
        self._leases = leases
        self._visits = visits
        self._plans = plans

    def assign(self, now: float, client: int) -> Assignment:
        """Open a visit of a client that was taken out of the pool."""
        try:
            plan = self._algorithm.assign(client, self._plans.plan(client, self._algorithm.version))
        except BaseException:
            self._candidates.put_back(client)
            raise
        lease_until, visit_until = self._leases.new(now)
        self.statistics.assigned += 1
        assignment = self._visits.open(client, self._algorithm.version, plan, lease_until, visit_until)
        self._candidates.note_assigned(client)
        if lease_until < math.inf:
            self.expect_end(assignment)
        return assignment

    def expect_end(self, assignment: Assignment) -> None:
        """Enter the end of a new or renewed lease."""
        of_round = self._candidates.has_rounds and self._algorithm.period is None
        self._leases.expect_end(assignment.lease_until, assignment.client, assignment.visit, of_round=of_round)

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
        staleness = self._algorithm.version - update.version
        number = self._algorithm.released + 1
        receipt = Receipt(True, staleness, self._algorithm.receive(update))
        statistics = self.statistics
        statistics.lost -= self._visits.close(update.client, receipt)
        statistics.counted += 1
        statistics.staleness_sum += staleness
        statistics.staleness_max = max(statistics.staleness_max, staleness)
        self._candidates.note_counted(update, number)
        self._follow_round()
        return receipt

    def refuse(self, client: int, version: int, call: VisitCall) -> Receipt:
        """Close the visit of a client without its update, and free its slot.

        Args:
            client: The visit's client.
            version: The version that the visit works from.
            call: ``RECEIVE`` or ``OFFER``.
        """
        staleness = self._algorithm.version - version
        receipt = Receipt(False, staleness, self._algorithm.drop(client, version))
        self.statistics.lost -= self._visits.close(client, receipt, call)
        self.statistics.unused += 1
        self._follow_round()
        return receipt

    def closed_receipt(self, client: int, visit: int) -> Receipt:
        """Return the receipt of a closed visit.

        If the receipt is no longer known, the answer is that the visit did not count.
        """
        staleness = self._algorithm.version - self._visits.version(client)
        return self._visits.receipt(client, visit) or Receipt(False, staleness, False)

    def lose(self, client: int, call: VisitCall) -> bool:
        """Free the slot of an open visit; return whether that made a new version.

        The visit stays open; ``call`` is ``DROP`` or ``LAPSE``.
        """
        new_version = self._algorithm.drop(client, self._visits.version(client))
        self._visits.lapse(client, call)
        self.statistics.lost += 1
        self._follow_round()
        return new_version

    def finish(self) -> None:
        """Close all open visits.

        The algorithm keeps their slots until ``free_slot``, so that it does not make a version of a part of a round.
        """
        self.statistics.lost += self._visits.finish(self._algorithm.version)

    def free_slot(self, client: int) -> bool:
        """Free a slot that was kept; return whether that made a new version."""
        new_version = self._algorithm.drop(client, self._visits.version(client))
        self._visits.free_slot(client)
        self._follow_round()
        return new_version

    def ended_leases(self, now: float) -> Iterator[Assignment]:
        """Yield the open visits whose leases have ended.

        Call ``lose`` for each before asking for the next.
        """
        while (first := self._leases.first_ended(now)) is not None:
            lease_until, client, visit = first
            assignment = self._visits.assignment(client, visit)
            if assignment and assignment.lease_until == lease_until and self._visits.has_slot(client):
                yield assignment
            self._leases.remove_first()

    def tick(self) -> bool:
        """Let a period or a deadline pass; return whether that made a new version."""
        released = self._algorithm.released
        new_version = self._algorithm.tick()
        if self._algorithm.released > released:
            self._candidates.note_numbers(())  # of updates that it has left for later
        self._follow_round()
        return new_version

    def reveal(self, opened: Tensor) -> bool:
        """Make the version of the oldest sealed sum; return True."""
        new_version = self._algorithm.reveal(opened)
        self._follow_round()
        return new_version

    def discard(self) -> None:
        """Forget the oldest sealed sum."""
        updates = self._oldest_updates()
        self._algorithm.discard()
        self._candidates.note_failure([update.client for update in updates], self._algorithm.opened)
        self._take_back(updates)
        self._follow_round()

    def withdraw(self, client: int) -> None:
        """Take a client's update out of the oldest sealed sum."""
        updates = self._oldest_updates()
        self._algorithm.withdraw(client)
        self._candidates.note_numbers([update.client for update in updates if update.client != client])
        self._take_back([update for update in updates if update.client == client])
        self._follow_round()

    def _oldest_updates(self) -> list[Update]:
        """Return the updates of the oldest sealed sum."""
        return [entry.update for closed in self._algorithm.sealed[:1] for entry in closed.entries]

    def _take_back(self, updates: Iterable[Update]) -> None:
        """Let clients send differences to their updates before these.

        No version has these updates.
        """
        if self._algorithm.payload == "difference":
            for update in updates:
                self._visits.return_to(update.client, update.since)

    def _follow_round(self) -> None:
        """Begin the round and the sum that the algorithm has opened, if it has."""
        if self._candidates.open_round():
            self._leases.round_deadline = math.inf
        self._candidates.open_sum()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of everything but the algorithm."""
        return {
            **prefixed("statistics", asdict(self.statistics)),
            **self._candidates.state_dict(),
            "round_deadline": self._leases.round_deadline,
            "steps": list(self._plans.noted.items()),
            **prefixed("visits", self._visits.state_dict(self._plans)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, after the algorithm has."""
        self.statistics = Statistics(**under("statistics", state))
        self._candidates.load_state_dict(state)
        self._plans.noted.update(state["steps"])
        self._visits.load_state_dict(under("visits", state), self._plans)
        held = [one for one in self._visits.open_assignments() if self._visits.has_slot(one.client)]
        self._leases.load(held, state["round_deadline"])
