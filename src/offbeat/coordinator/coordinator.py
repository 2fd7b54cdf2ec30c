"""Who holds which version, what is due, what is late: drives one algorithm in either world."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components import Algorithm, LocalPlan, Update, UpdateRefusedError, Vector
from offbeat.algorithms.components.checks import check_client, check_not_negative
from offbeat.algorithms.components.state import prefixed, under
from offbeat.coordinator.assignments import VisitTable
from offbeat.coordinator.calls import Assignment, Call, Receipt, Statistics, VisitState
from offbeat.coordinator.selection import POOLS, Pool

_NEW_SHARE_OF_LEASE = 0.05
_OF_THE_VISIT = frozenset({"client", "version", "plan"})  # what the table knows of an update
_CALLS = frozenset(
    (
        "present",
        "absent",
        "note_speed",
        "assign",
        "offer",
        "receive",
        "renew",
        "drop",
        "lapse",
        "tick",
        "weigh_clients",
    )
)  # that can be replayed


class Coordinator:
    """Hands out work and takes updates in, each exactly once; owns the algorithm and the table of work in flight.

    Sans-IO: it has no clock, every call says what time it is. A simulator makes the calls from its event queue, a
    server from its requests: ``present`` (a client is there and idle), ``note_speed`` (how fast a client is that has
    had no visit), ``assign`` (fill the algorithm's slots),
    ``offer`` (a client asks whether its update is still wanted), ``receive`` (the update), ``renew`` (a client is still
    at work), ``drop`` (it gave up), ``lapse`` (leases that have ended), ``tick``,
    ``weigh_clients`` (every client's number of examples is known).

    A client has at most one open assignment. It has to be ``present`` again before it is given another; that closes
    the old one. So the table has one entry a client, whatever the length of the run. A lease that lapses frees the
    slot but not the right to be heard: a late update counts as long as the algorithm wants it and it is not staler
    than ``max_staleness``. Where there are rounds, one that still has free places when the last of its leases has ended
    waits for nobody else and ends with what is in.

    If the algorithm's ``note_speed``, ``assign``, ``receive``, ``drop`` or ``tick`` raises, that step has not happened;
    what the same call did before, to other clients, stays, and is recorded.

    Args:
        algorithm: Started here, with ``model``.
        model: Initial model, float32 ``(d,)``.
        clients: Number of clients N.
        local: The run's plan for a visit.
        seed: The run's seed.
        lease_seconds: How long a slot is kept for a silent client.
        max_visit_seconds: How long a slot is kept at most, however often the client renews its lease.
        max_staleness: The largest staleness at which an update counts; None for any.
        data_weights: Each client's share of the objective, ``(N,)``; None for uniform.
        waits_for_examples: Whether there is no work before ``weigh_clients``.
        record: Called with every call that changed something, after it did; what it gets can be replayed.

    Attributes:
        local: The run's plan for a visit.
        record: The same; may be set later, for instance once a log has been replayed.
        waits_for_examples: Whether ``weigh_clients`` has to come first.

    Raises:
        ValueError: Something does not fit, for instance a cohort that is larger than N.
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
        waits_for_examples: bool = False,
        record: Callable[[Call], None] | None = None,
    ) -> None:
        if max_staleness is not None and algorithm.measures:
            raise ValueError(
                f"{algorithm.name} plans each client's work by how long it took, and would never hear of one that is "
                "always too stale: leave server.max_staleness out"
            )
        algorithm.start(model, clients, data_weights)
        self.algorithm = algorithm
        self.clients = clients
        self.statistics = Statistics()
        self.local = local
        self._lease_seconds = lease_seconds
        self._max_visit_seconds = max_visit_seconds
        self._max_staleness = max_staleness
        self.record = record
        self.waits_for_examples = waits_for_examples
        self._present = bytearray(clients)
        selection = algorithm.selection
        # Who is present and may be assigned in this round.
        self._pool: Pool = (POOLS[selection] if isinstance(selection, str) else selection)(clients, seed)
        self._round = algorithm.round
        self._had_turn: dict[int, None] = {}  # who was assigned or heard in this round, in order
        self._resting: dict[int, int] = {}  # who may not come again before a later round, and which
        self._returning: dict[int, list[int]] = {}  # the same, by round
        self._round_deadline = math.inf  # when the last lease of this round ends
        self._visits = VisitTable(clients)
        self._leases: list[tuple[float, int, int]] = []  # a heap of (end, client, visit); some are over

    @property
    def may_refuse(self) -> bool:
        """Whether an update may come too late to count; if not, ``offer`` answers None for every open visit."""
        return self._max_staleness is not None or not self.algorithm.wants_all

    def weigh_clients(self, now: float, examples: Sequence[int]) -> None:
        """Start the algorithm with the clients' data weights, before any work is handed out.

        Args:
            now: Seconds.
            examples: How many examples each of the N clients holds.

        Raises:
            ValueError: There are not N numbers, one is negative, all are 0, or the clients have been weighed.
        """
        if not self.waits_for_examples:
            raise ValueError("the clients have been weighed already")
        weights = torch.tensor(examples, dtype=torch.float64)
        self.algorithm.start(self.algorithm.model, self.clients, weights)
        self.waits_for_examples = False
        self._round = self.algorithm.round
        self._note("weigh_clients", now=now, examples=list(examples))

    def present(self, now: float, client: int) -> None:
        """Note that the client is there and idle; nothing happens if that is known.

        Raises:
            ValueError: There is no such client.
        """
        check_client(client, self.clients)
        if self._present[client]:
            return
        self._present[client] = True
        if self._round is None or (client not in self._had_turn and client not in self._resting):
            self._pool.add(client)
        if self.record:
            self.record(Call("present", {"now": now, "client": client}))

    def wants_speed(self, client: int) -> bool:
        """Return whether the algorithm plans by how fast a client is, and no visit of the client can have shown it.

        A run that waits for its clients' examples asks for nothing: the algorithm begins anew with them.
        """
        return self.algorithm.measures and not self.waits_for_examples and self._visits.latest(client) < 0

    def note_speed(self, now: float, client: int, step_seconds: float, upload_seconds: float) -> None:
        """Note how fast a client is; nothing happens unless ``wants_speed``. What comes last counts.

        Args:
            now: Seconds.
            client: Whose speed it is.
            step_seconds: Measured seconds a local step.
            upload_seconds: Measured seconds for an uncompressed upload.

        Raises:
            ValueError: There is no such client, or a number is negative or not finite; nothing has changed.
        """
        check_client(client, self.clients)
        check_not_negative("step_seconds", step_seconds)
        check_not_negative("upload_seconds", upload_seconds)
        if self.wants_speed(client):
            self.algorithm.now = now
            self.algorithm.note_speed(client, step_seconds, upload_seconds)
            self._note("note_speed", now=now, client=client, step_seconds=step_seconds, upload_seconds=upload_seconds)

    def absent(self, now: float, client: int) -> None:
        """Note that the client is not to be had for new work; nothing happens if that is known.

        Raises:
            ValueError: There is no such client.
        """
        check_client(client, self.clients)
        if not self._present[client]:
            return
        self._present[client] = False
        self._pool.discard(client)
        self._note("absent", now=now, client=client)

    def assign(self, now: float, clients: Iterable[int] | None = None) -> list[Assignment]:
        """Give work to as many idle clients as the algorithm wants and as there are.

        Args:
            now: Seconds.
            clients: Who it was, in a replay; so the records of who was present are not needed for one.
        """
        self.algorithm.now = now
        assignments: list[Assignment] = []
        if clients is not None and self.waits_for_examples:
            raise ValueError(f"{self.algorithm.name} needs every client's number of examples before there is work")
        try:
            if clients is not None:
                for client in clients:
                    self._pool.take(client)
                    assignments.append(self._assign(now, client))
            while clients is None and self.has_work:
                assignments.append(self._assign(now, self._pool.pick()))
        finally:
            if assignments and self.record:
                self._note("assign", now=now, clients=[assignment.client for assignment in assignments])
        return assignments

    def _assign(self, now: float, client: int) -> Assignment:
        try:
            plan = self.algorithm.assign(client, self.local)
        except BaseException:
            self._return(client)
            raise
        visit_until = now + self._max_visit_seconds
        lease_until = min(now + self._lease_seconds, visit_until)
        self.statistics.lost += self.is_open(client)
        assignment = self._visits.open(client, self.algorithm.version, plan, lease_until, visit_until)
        self._present[client] = False
        if self._round is not None:
            self._take_turn(client)
        if lease_until < math.inf:
            self._expect_lapse(lease_until, client, assignment.visit)
        self.statistics.assigned += 1
        return assignment

    def _expect_lapse(self, lease_until: float, client: int, visit: int) -> None:
        heapq.heappush(self._leases, (lease_until, client, visit))
        if self._round is not None and self.algorithm.period is None:
            self._round_deadline = lease_until

    def assignment(self, client: int) -> Assignment | None:
        """Return the client's assignment if its update is still expected, for one that lost the answer to its call."""
        return self._visits.assignment(client)

    @property
    def has_work(self) -> bool:
        """Whether ``assign`` would give somebody work now."""
        return not self.waits_for_examples and bool(self._pool) and self.algorithm.slots() > 0

    def unfinished(self) -> Iterator[Assignment]:
        """Return all assignments whose updates are still expected."""
        return (assignment for assignment, _ in self._visits.open_assignments())

    def is_open(self, client: int) -> bool:
        """Return whether the client has a slot: its lease has not ended, and its update not come."""
        return self._visits.state(client) is VisitState.OPEN

    def is_wanted(self, client: int, visit: int) -> bool:
        """Return whether the update of a visit would count now."""
        assignment = self._expected(client, visit)
        return assignment is not None and self._counts_now(assignment)

    def offer(self, now: float, client: int, visit: int) -> Receipt | None:
        """Answer a client that is about to upload: None if it should, else what has become of its update.

        If the update would not count, the visit is over and the upload is saved. That may end a round, like ``drop``.

        Raises:
            ValueError: The client was never given this work.
        """
        assignment = self._expected(client, visit)
        if assignment is None:
            return self._answered(client, visit)
        self.algorithm.now = now
        if self._counts_now(assignment):
            return None
        receipt = self._refuse(assignment)
        self._note("offer", now=now, client=client, visit=visit)
        return receipt

    def receive(
        self,
        now: float,
        client: int,
        visit: int,
        vector: Vector,
        *,
        examples: int,
        steps: int,
        normaliser: float,
        base: Tensor | None = None,
        since: int | None = None,
        step_seconds: float | None = None,
        upload_seconds: float | None = None,
        loss: float | None = None,
    ) -> Receipt:
        """Take in the update of a visit; the other arguments are those of ``Update``.

        The vector's entries are not looked at: whoever made it has called ``check_vector``.

        An update that came already gets its first answer again, as long as it is the client's latest or its last
        counted one. One that came too late, or that the algorithm refuses, is acknowledged, counted as unused, and
        changes nothing else; that may end a round, like ``drop``.

        Raises:
            ValueError: The client was never given this work, or its update would count but is malformed; nothing has
                changed.
        """
        assignment = self._expected(client, visit)
        if assignment is None:
            return self._answered(client, visit)
        self.algorithm.now = now
        update = Update(
            client,
            assignment.version,
            vector,
            examples,
            steps,
            normaliser,
            base,
            since,
            step_seconds,
            upload_seconds,
            loss,
            assignment.plan,
        )
        try:
            receipt = self._count(update) if self._counts_now(assignment) else self._refuse(assignment)
        except UpdateRefusedError:
            receipt = self._refuse(assignment)
        if self.record:
            arguments = {name: value for name, value in update._asdict().items() if name not in _OF_THE_VISIT}
            self._note("receive", now=now, client=client, visit=visit, **arguments)
        return receipt

    def remembers(self, client: int, visit: int) -> bool:
        """Return whether it is known if a visit that is over counted: it is no older than the last that did."""
        return visit >= self._visits.counted_visit(client)

    def has_counted(self, client: int, visit: int) -> bool:
        """Return whether a visit counted, if that is remembered."""
        receipt = self._visits.receipt(client, visit)
        return receipt is not None and receipt.counted

    def renew(self, now: float, client: int, visit: int) -> bool:
        """Let the lease of an open visit begin anew, but not beyond its longest duration; return whether it is open.

        One that has hardly begun is left as it is, so that nobody who calls often makes much work.

        Raises:
            ValueError: The client was never given this work.
        """
        assignment = self._expected(client, visit)
        if assignment is None:
            self._answered(client, visit)  # which knows whether there was such a visit
            return False
        if not self.is_open(client):
            return False
        lease_until = min(now + self._lease_seconds, assignment.visit_until)
        if lease_until - assignment.lease_until > _NEW_SHARE_OF_LEASE * self._lease_seconds:
            self._visits.renew(client, lease_until)
            self._expect_lapse(lease_until, client, visit)
            self._note("renew", now=now, client=client, visit=visit)
        return True

    def drop(self, now: float, client: int, visit: int) -> bool:
        """Note that the client gave up; return whether that made a new version.

        Nothing happens if the visit is not open any more.

        Raises:
            ValueError: The client was never given this work.
        """
        if self._expected(client, visit) is None:
            self._answered(client, visit)  # which knows whether there was such a visit
            return False
        if not self.is_open(client):
            return False
        self.algorithm.now = now
        new_version = self._let_lapse(client)
        self._open_round_if_new()
        self._note("drop", now=now, client=client, visit=visit)
        return new_version

    def lapse(self, now: float) -> bool:
        """Let the leases lapse that have ended; return whether that made a new version."""
        self.algorithm.now = now
        lapsed: list[tuple[int, int]] = []
        ended = new_version = False
        try:
            while self._leases and self._leases[0][0] <= now:
                lease_until, client, visit = self._leases[0]
                assignment = self._expected(client, visit)
                if assignment is not None and assignment.lease_until == lease_until and self.is_open(client):
                    new_version = self._let_lapse(client) or new_version
                    lapsed.append((client, visit))
                    self._open_round_if_new()
                heapq.heappop(self._leases)
            if min(self._round_deadline, self.algorithm.deadline()) <= now:
                new_version = self.algorithm.tick() or new_version
                self._round_deadline = math.inf
                ended = True
                self._open_round_if_new()
        except BaseException:
            # A lapse that is made again would be of all leases, so each of these is recorded as what it comes to.
            for client, visit in lapsed:
                self._note("drop", now=now, client=client, visit=visit)
            raise
        if lapsed or ended:
            self._note("lapse", now=now)
        return new_version

    def forget_presence(self) -> None:
        """Note that nobody is known to be there, as after a restart."""
        for client, present in enumerate(self._present):
            if present:
                self.absent(0.0, client)

    def next_lapse(self) -> float:
        """Return when ``lapse`` is to be called next, in seconds; infinity if nothing is due."""
        lease = self._leases[0][0] if self._leases else math.inf
        return min(lease, self._round_deadline, self.algorithm.deadline())

    def urgent(self) -> list[Assignment]:
        """Return the assignments of those in flight that should hand in now what they have so far.

        Their updates then come as others do, only with fewer steps.
        """
        return self._assignments_of(self.algorithm.urgent())

    def cancelled(self) -> list[Assignment]:
        """Return the assignments whose updates are not wanted any more, so that their clients stop."""
        return self._assignments_of(self.algorithm.cancelled())

    def _assignments_of(self, clients: Iterable[int]) -> list[Assignment]:
        found = map(self._visits.assignment, clients)
        return [assignment for assignment in found if assignment is not None]

    def tick(self, now: float) -> bool:
        """Note that one of the algorithm's periods has passed; return whether that made a new version.

        Nothing happens before the clients have been weighed.
        """
        if self.waits_for_examples:
            return False
        self.algorithm.now = now
        new_version = self.algorithm.tick()
        self._open_round_if_new()
        self._note("tick", now=now)
        return new_version

    def replay(self, call: Call) -> None:
        """Make a recorded call again."""
        if call.name not in _CALLS:
            raise ValueError(f"{call.name!r} is no call that can be replayed")
        getattr(self, call.name)(**call.arguments)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values."""
        return {
            **prefixed("algorithm", self.algorithm.state_dict()),
            **prefixed("pool", self._pool.state_dict()),
            **prefixed("statistics", asdict(self.statistics)),
            "present": torch.frombuffer(bytearray(self._present), dtype=torch.uint8).nonzero().view(-1),
            "had_turn": torch.tensor(list(self._had_turn), dtype=torch.int64),
            "resting": torch.tensor(list(self._resting.items()), dtype=torch.int64).reshape(-1, 2),
            "round_deadline": self._round_deadline,
            "waits_for_examples": self.waits_for_examples,
            **prefixed("visits", self._visits.state_dict(self.local)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state; the arguments of the constructor must be the same."""
        self.waits_for_examples = state["waits_for_examples"]
        self.algorithm.load_state_dict(under("algorithm", state))
        self._pool.load_state_dict(under("pool", state))
        self.statistics = Statistics(**under("statistics", state))
        self._present = bytearray(self.clients)
        for client in state["present"].tolist():
            self._present[client] = True
        self._round = self.algorithm.round
        self._had_turn = dict.fromkeys(state["had_turn"].tolist())
        self._resting, self._returning = {}, {}
        for client, returns in state["resting"].tolist():
            self._rest(client, returns)
        self._round_deadline = state["round_deadline"]
        self._visits.load_state_dict(under("visits", state), self.local)
        self._leases = [
            (assignment.lease_until, assignment.client, assignment.visit)
            for assignment, state in self._visits.open_assignments()
            if state is VisitState.OPEN and assignment.lease_until < math.inf
        ]
        heapq.heapify(self._leases)

    def _expected(self, client: int, visit: int) -> Assignment | None:
        """Return the assignment of a visit that is not over."""
        assignment = self._visits.assignment(client)
        return assignment if assignment is not None and assignment.visit == visit else None

    def _answered(self, client: int, visit: int) -> Receipt:
        """Return what the client was, or would have been, told of a visit that is over.

        Raises:
            ValueError: The client was never given this work.
        """
        check_client(client, self.clients)
        if not 0 <= visit <= self._visits.latest(client):
            raise ValueError(f"client {client} was never given visit {visit}")
        receipt = self._visits.receipt(client, visit)
        if receipt is not None:
            return receipt
        # Of older visits only the last counted one is remembered; that this one is not it is all that is known.
        return Receipt(
            counted=False, staleness=self.algorithm.version - self._visits.version(client), new_version=False
        )

    def _counts_now(self, assignment: Assignment) -> bool:
        client, _, version, *_ = assignment
        too_stale = self._max_staleness is not None and self.algorithm.version - version > self._max_staleness
        return not too_stale and self.algorithm.wants(client, version)

    def _count(self, update: Update) -> Receipt:
        staleness = self.algorithm.version - update.version
        receipt = Receipt(True, staleness, self.algorithm.receive(update))
        self._close(update.client, receipt)
        self._pool.counted(update)
        statistics = self.statistics
        statistics.counted += 1
        statistics.staleness_sum += staleness
        statistics.staleness_max = max(statistics.staleness_max, staleness)
        if self._round is not None:
            if self.algorithm.round == self._round:
                self._take_turn(update.client)
            self._open_round_if_new()
        return receipt

    def _refuse(self, assignment: Assignment) -> Receipt:
        """Close a visit whose update does not count, and free its slot."""
        client, _, version, *_ = assignment
        staleness = self.algorithm.version - version
        receipt = Receipt(False, staleness, self.algorithm.drop(client, version))
        self._close(client, receipt)
        self.statistics.unused += 1
        self._open_round_if_new()
        return receipt

    def _close(self, client: int, receipt: Receipt) -> None:
        if self._visits.state(client) is VisitState.LAPSED:
            self.statistics.lost -= 1
        self._visits.close(client, receipt)

    def _let_lapse(self, client: int) -> bool:
        new_version = self.algorithm.drop(client, self._visits.version(client))
        self._visits.lapse(client)
        self.statistics.lost += 1
        return new_version

    def _take_turn(self, client: int) -> None:
        """Keep the client from being assigned again in this round."""
        self._had_turn[client] = None
        self._pool.discard(client)

    def _open_round_if_new(self) -> None:
        """If the algorithm has opened a new round, who had a turn may be assigned again, now or in a later one."""
        opened, before = self.algorithm.round, self._round
        if opened == before:
            return
        self._round = opened
        self._round_deadline = math.inf
        had_turn, self._had_turn = self._had_turn, {}
        for client in had_turn:
            returns = self.algorithm.returns_in(client)
            if returns is not None and opened is not None and returns > opened:
                self._rest(client, returns)
            else:
                self._return(client)
        if opened is not None and before is not None:
            for number in range(before + 1, opened + 1):
                for client in self._returning.pop(number, ()):
                    del self._resting[client]
                    self._return(client)

    def _rest(self, client: int, returns: int) -> None:
        self._resting[client] = returns
        self._returning.setdefault(returns, []).append(client)

    def _return(self, client: int) -> None:
        if self._present[client]:
            self._pool.add(client)

    def _note(self, name: str, **arguments: Any) -> None:
        if self.record:
            self.record(Call(name, arguments))
