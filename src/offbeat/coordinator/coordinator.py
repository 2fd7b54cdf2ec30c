"""The coordinator: drives one algorithm, in a simulation and on a server alike."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from offbeat_core.number_checks import check_count, check_not_negative
from torch import Tensor

from offbeat.algorithms.components import Algorithm, LocalPlan, Update, Vector
from offbeat.algorithms.components.client_update import Report, check_client
from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator.candidates import Candidates
from offbeat.coordinator.coordinator_state import CoordinatorState, Statistics
from offbeat.coordinator.leases import LateUpdates, Leases
from offbeat.coordinator.participation_limits import Participation
from offbeat.coordinator.sealed_sums import SEALED_SUM_CALLS, SealedSums
from offbeat.coordinator.visit_plans import VisitPlans
from offbeat.coordinator.visit_states import VisitCall
from offbeat.coordinator.visits import Assignment, Receipt, VisitTable

_NOT_RECORDED = frozenset({"client", "version", "plan"})  # parts of an update that its visit determines
_REPLAYED_AS_NAMED = frozenset(
    (
        *("present", "absent", "note_speed", "offer", "receive", "renew", "drop", "lapse", "tick", "weigh_clients"),
        *("limit_participation", "finish", "forget", "free_slot", "note_steps", "grow"),
    )
)


@dataclass(frozen=True)
class RecordedCall:
    """A call that changed a coordinator.

    The same calls make the same state again, bit for bit.
    """

    name: str
    arguments: dict[str, Any]


class Coordinator:
    """Gives out work and takes updates in, each exactly once.

    Sans-IO: a simulator makes the calls from its event queue, a server from its requests, and each says the time. Every
    call that changes something is recorded; ``replay`` of the records makes the same state again, bit for bit.

    Each part of the state is in one object: ``Candidates`` (the clients that may be assigned, and the rounds),
    ``VisitTable`` (the visits; ``visit_states`` has their table), ``Leases`` (their ends) and the algorithm (the
    model). A call is checked first; then ``CoordinatorState`` changes all of them together; then the call is recorded.
    Sums that a helper has to open are in ``sealed_sums``.

    A client has at most one open visit. It has to be ``present`` again before it is given another; the new visit closes
    the old one, which is dropped first if it still has its slot. A lease that lapses frees the slot, but the visit
    stays open; ``LateUpdates`` says whether its update still counts. A round whose leases have all ended
    does not wait for clients to fill its free places: it ends with the updates that it has.

    A call about a visit that its client was never given raises ``ValueError``, and so does a constructor whose
    arguments do not go together. A call that raises because of its arguments changes nothing. If a method of the
    algorithm raises, the step for this client has not happened; steps for other clients that the same call took before
    stay, and are recorded.

    Args:
        algorithm: Started here, with ``model``.
        model: Initial model, float32 ``(d,)``.
        clients: Number of clients N.
        local: The run's plan for a visit, whose step sizes decay here, and whose steps may depend on the client.
        seed: The run's seed.
        lease_seconds: How long a slot is kept for a silent client.
        max_visit_seconds: How long a slot is kept at most, however often the client renews its lease.
        max_staleness: The largest staleness at which an update counts; None for any.
        data_weights: Each client's share of the objective, ``(N,)``; None for uniform.
        examples: The clients' numbers of examples, for steps that depend on them; None if ``note_steps`` will be
            called for each client.
        waits_for_examples: Whether there is no work before ``weigh_clients``.
        participation: The limits on a client's part in sums; None for none.
        record: Called with every call that has changed something. It may be set later, for instance after a replay.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        model: Tensor,
        *,
        clients: int,
        local: LocalPlan,
        seed: int = 0,
        lease_seconds: float = math.inf,
        max_visit_seconds: float = math.inf,
        max_staleness: int | None = None,
        data_weights: Tensor | None = None,
        examples: Sequence[int] | None = None,
        waits_for_examples: bool = False,
        participation: Participation | None = None,
        record: Callable[[RecordedCall], None] | None = None,
    ) -> None:
        algorithm.check_local(local)
        if local.steps_by is not None and participation is not None:
            raise ValueError(
                "[privacy] needs the same number of steps for all clients, or the time of a visit would tell how many "
                "examples a client holds: set local.steps to a number"
            )
        self.late_updates = LateUpdates(algorithm, max_staleness)
        algorithm.start(model, clients, data_weights)
        self.algorithm = algorithm
        self.clients = clients
        self.local = local
        self.record = record
        self.waits_for_examples = waits_for_examples
        self.visits = VisitTable(clients)  # to be read only
        self.participation = participation  # to be read only
        self._candidates = Candidates(algorithm, clients, seed, participation)
        self._leases = Leases(lease_seconds, max_visit_seconds)
        self._plans = VisitPlans(local, examples)
        self._state = CoordinatorState(algorithm, self._candidates, self._leases, self.visits, self._plans)
        self.sealed_sums = SealedSums(self._state, self._note)

    @property
    def statistics(self) -> Statistics:
        """The numbers of visits so far."""
        return self._state.statistics

    @property
    def has_work(self) -> bool:
        """True if ``assign`` would give work to a client now."""
        return not self.waits_for_examples and self.algorithm.slots() > 0 and bool(self._candidates.pool)

    @property
    def idle(self) -> int:
        """The number of available clients without work."""
        return self._candidates.idle

    def wants_speed(self, client: int) -> bool:
        """Return whether the algorithm needs the client's speed to be measured.

        It does if it plans by speed, does not wait for examples, and the client has had no visit.
        """
        return self.algorithm.measures and not self.waits_for_examples and self.visits.latest(client) < 0

    def next_lapse(self) -> float:
        """Return when ``lapse`` is due next, in seconds; infinity if never."""
        return min(self._leases.next_seconds(), self.algorithm.deadline())

    def weigh_clients(self, now: float, examples: Sequence[int]) -> None:
        """Start the algorithm with the numbers of examples of the N clients.

        This comes before any work. A ``ValueError`` if there are not N numbers, one is negative, or all are 0.
        """
        if not self.waits_for_examples:
            raise ValueError("the clients have been weighed already")
        weights = torch.tensor(examples, dtype=torch.float64)
        self.algorithm.start(self.algorithm.model, self.clients, weights)
        self.waits_for_examples = False
        self._candidates.begin()
        self._note("weigh_clients", now=now, examples=list(examples))

    def grow(self, now: float, clients: int) -> None:
        """Let the run have so many clients N, more than before.

        Raises:
            ValueError: There are not more, or something depends on N: the algorithm, its selection, or privacy.
        """
        check_count("clients", clients)
        if clients <= self.clients:
            raise ValueError(f"the run has {self.clients} clients: there can only be more")
        if self.participation is not None:
            raise ValueError("a private run cannot have more clients: their number N is in its terms")
        if not self._candidates.can_grow:
            raise ValueError(f"{self.algorithm.name} selects clients by a rule that knows N from the start")
        self.algorithm.grow(clients)
        self._grow(clients)
        self._note("grow", now=now, clients=clients)

    def _grow(self, clients: int) -> None:
        self.clients = clients
        self.visits.grow(clients)
        self._candidates.grow(clients)

    def needs_steps(self, client: int) -> bool:
        """Return whether the client's steps must be noted before it is available."""
        return self._plans.needs(client)

    def note_steps(self, now: float, client: int, steps: int) -> None:
        """Record how many steps the client takes in its visits, if that is needed."""
        check_client(client, self.clients)
        check_count("steps", steps)
        if self.needs_steps(client):
            self._plans.noted[client] = steps
            self._note("note_steps", now=now, client=client, steps=steps)

    def limit_participation(self, now: float, client: int, most: int) -> None:
        """Let a client take part in at most so many sums, if more are allowed now."""
        check_client(client, self.clients)
        if self.participation is not None and most < self.participation.limit_of(client):
            self._candidates.limit(client, most)
            self._note("limit_participation", now=now, client=client, most=most)

    def present(self, now: float, client: int) -> None:
        """Record that a client is available.

        A ``ValueError`` if it does not exist, or if its steps are not known.
        """
        check_client(client, self.clients)
        if self.needs_steps(client):
            raise ValueError(f"the steps of client {client} are not known yet")
        if self._candidates.arrive(client) and self.record:
            self._note("present", now=now, client=client)

    def absent(self, now: float, client: int) -> None:
        """Record that a client is offline; a ``ValueError`` if it does not exist."""
        check_client(client, self.clients)
        if self._candidates.depart(client):
            self._note("absent", now=now, client=client)

    def forget_presence(self) -> None:
        """Record that no client is known to be available, as after a restart."""
        for client in self._candidates.available():
            self.absent(0.0, client)

    def note_speed(self, now: float, client: int, step_seconds: float, upload_seconds: float) -> None:
        """Record the seconds of a client's step and uncompressed upload, if wanted."""
        check_client(client, self.clients)
        check_not_negative("step_seconds", step_seconds)
        check_not_negative("upload_seconds", upload_seconds)
        if self.wants_speed(client):
            self.algorithm.now = now
            self.algorithm.note_speed(client, step_seconds, upload_seconds)
            self._note("note_speed", now=now, client=client, step_seconds=step_seconds, upload_seconds=upload_seconds)

    def assign(self, now: float) -> list[Assignment]:
        """Assign available clients until the algorithm wants no more.

        A client whose last visit still has its slot has lost that work: the visit is dropped first.
        """
        assignments: list[Assignment] = []
        came_back: list[int] = []

        def picks() -> Iterator[int]:
            while self.has_work and not came_back:
                client = self._candidates.pool.pick()
                if self.visits.has_slot(client):
                    came_back.append(client)
                else:
                    yield client

        while True:
            assignments += self._assign_each(now, picks())
            if not came_back:
                return assignments
            client = came_back.pop()
            try:
                self.drop(now, client, self.visits.latest(client))
            except BaseException:
                self._candidates.put_back(client)
                raise
            if self.algorithm.slots() > 0:
                assignments += self._assign_each(now, [client])
            else:
                self._candidates.put_back(client)

    def _assign_each(self, now: float, clients: Iterable[int]) -> list[Assignment]:
        self.algorithm.now = now
        assignments: list[Assignment] = []
        try:
            for client in clients:
                assignments.append(self._state.assign(now, client))
        finally:
            if assignments and self.record:
                self._note("assign", now=now, clients=[assignment.client for assignment in assignments])
        return assignments

    def renew(self, now: float, client: int, visit: int) -> bool:
        """Renew the lease of an open visit; return whether the visit has a slot.

        The lease begins anew, within the visit's longest duration.
        """
        assignment = self.visits.look_up(client, visit)
        if assignment is None or not self.visits.has_slot(client):
            return False
        lease_until = self._leases.renewed(now, assignment)
        if lease_until is not None:
            self._state.expect_end(self.visits.renew(client, lease_until))
            self._note("renew", now=now, client=client, visit=visit)
        return True

    def offer(self, now: float, client: int, visit: int) -> Receipt | None:
        """Return None if the client should upload, else the receipt of its update.

        If the update would not count, the visit is closed without an upload. Like ``drop``, that may end a round.
        """
        assignment = self.visits.look_up(client, visit)
        if assignment is None:
            return self._state.closed_receipt(client, visit)
        self.algorithm.now = now
        if self.late_updates.counts(assignment):
            return None
        receipt = self._state.refuse(client, assignment.version, VisitCall.OFFER)
        self._note("offer", now=now, client=client, visit=visit)
        return receipt

    def receive(
        self,
        now: float,
        client: int,
        visit: int,
        vector: Vector,
        *,
        base: Tensor | None = None,
        **report: Unpack[Report],
    ) -> Receipt:
        """Take in the update of a visit; the other arguments are those of ``Update``.

        The vector's entries are not looked at: its maker has called ``check_vector``. A repeated update gets its
        first answer again, as long as it is the client's latest or its last counted one. An update that comes too
        late, or that the algorithm refuses, is answered and counted as unused; like ``drop``, that may end a round.

        Raises:
            ValueError: The update would count but is malformed.
        """
        assignment = self.visits.look_up(client, visit)
        if assignment is None:
            return self._state.closed_receipt(client, visit)
        self.algorithm.now = now
        update = Update(client, assignment.version, vector, base=base, plan=assignment.plan, **report)
        receipt = self._state.close(update, counts=self.late_updates.counts(assignment))
        if self.record:
            arguments = {name: value for name, value in update._asdict().items() if name not in _NOT_RECORDED}
            self._note("receive", now=now, client=client, visit=visit, **arguments)
        return receipt

    def drop(self, now: float, client: int, visit: int) -> bool:
        """Record that the client gave up; return whether that made a new version."""
        if self.visits.look_up(client, visit) is None or not self.visits.has_slot(client):
            return False
        self.algorithm.now = now
        new_version = self._state.lose(client, VisitCall.DROP)
        self._note("drop", now=now, client=client, visit=visit)
        return new_version

    def lapse(self, now: float) -> bool:
        """Let the leases lapse that have ended; return whether that made a new version."""
        self.algorithm.now = now
        lost: list[Assignment] = []
        is_deadline = new_version = False
        try:
            for assignment in self._state.ended_leases(now):
                new_version = self._state.lose(assignment.client, VisitCall.LAPSE) or new_version
                lost.append(assignment)
            if min(self._leases.round_deadline, self.algorithm.deadline()) <= now:
                new_version = self._state.tick() or new_version
                self._leases.round_deadline = math.inf
                is_deadline = True
        except BaseException:
            # A replayed lapse would be of all leases, so each visit that was lost is recorded by itself.
            for assignment in lost:
                self._note("drop", now=now, client=assignment.client, visit=assignment.visit)
            raise
        if lost or is_deadline:
            self._note("lapse", now=now)
        return new_version

    def finish(self, now: float) -> None:
        """Close all open visits of a run that has finished.

        Their updates do not count. That does not make a version, since the algorithm keeps the slots. If the run
        continues, ``free_slot`` frees them.
        """
        if self.visits.open_assignments():
            self._state.finish()
            self._note("finish", now=now)

    def free_slot(self, now: float, client: int) -> bool:
        """Free the slot of a visit that ``finish`` closed.

        Returns whether that made a new version.
        """
        if client not in self.visits.held_slots:
            return False
        self.algorithm.now = now
        new_version = self._state.free_slot(client)
        self._note("free_slot", now=now, client=client)
        return new_version

    def forget(self, now: float, client: int, taken: Mapping[str, int] | None = None) -> int:
        """Forget a client that will not come again, and that has no slot.

        Its participations stay counted.

        Args:
            now: Seconds.
            client: The client.
            taken: See ``Algorithm.forget``.

        Returns:
            How many of its updates were taken out of the sums to come.
        """
        check_client(client, self.clients)
        if self.visits.has_slot(client):
            raise ValueError(f"client {client} is at work: drop its visit first")
        self.algorithm.now = now
        found = self.algorithm.forget(client, taken)
        self._note("forget", now=now, client=client, taken=found)
        return sum(found.values())

    def tick(self, now: float) -> bool:
        """Let a period pass; return whether that made a new version."""
        if self.waits_for_examples:  # there is no period yet
            return False
        self.algorithm.now = now
        new_version = self._state.tick()
        self._note("tick", now=now)
        return new_version

    def replay(self, call: RecordedCall) -> None:
        """Make a recorded call again."""
        if call.name == "assign":
            self._assign_again(**call.arguments)
        elif call.name in _REPLAYED_AS_NAMED:
            getattr(self, call.name)(**call.arguments)
        elif call.name in SEALED_SUM_CALLS:
            getattr(self.sealed_sums, call.name)(**call.arguments)
        else:
            raise ValueError(f"{call.name!r} is not a call that can be replayed")

    def _assign_again(self, now: float, clients: Sequence[int]) -> None:
        """Give work to the clients of a record, without the records of their availability."""
        if self.waits_for_examples:
            raise ValueError(f"{self.algorithm.name} needs every client's number of examples before there is work")
        for client in clients:
            check_client(client, self.clients)

        def taken() -> Iterator[int]:
            for client in clients:
                self.visits.check(client, VisitCall.ASSIGN)
                yield self._candidates.take(client)

        self._assign_each(now, taken())

    def _note(self, name: str, **arguments: Any) -> None:
        if self.record:
            self.record(RecordedCall(name, arguments))

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values."""
        algorithm = prefixed("algorithm", self.algorithm.state_dict())
        return {**algorithm, "waits_for_examples": self.waits_for_examples, **self._state.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state; the arguments of the constructor must be the same.

        Only N may have grown since.
        """
        if (clients := state["algorithm.clients"]) > self.clients:
            self._grow(clients)
        self.waits_for_examples = state["waits_for_examples"]
        self.algorithm.load_state_dict(under("algorithm", state))
        self._state.load_state_dict(state)
