"""Who holds which version, what is due, what is late: drives one algorithm in either world."""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, LocalPlan, Update, Vector
from offbeat.algorithms.checks import check_client
from offbeat.algorithms.state import prefixed, under
from offbeat.coordinator_records import Assignment, Call, LatestVisit, Receipt, Statistics, VisitState
from offbeat.selection import POOLS


class Coordinator:
    """Hands out work and takes updates in, each exactly once; owns the algorithm and the table of work in flight.

    Sans-IO: it has no clock, every call says what time it is. A simulator makes the calls from its event queue, a
    server from its requests: ``present`` (a client is there and idle), ``assign`` (fill the algorithm's slots),
    ``offer`` (a client asks whether its update is still wanted), ``receive`` (the update), ``lapse`` (leases that have
    ended), ``tick``.

    A client has at most one open assignment. It has to be ``present`` again before it is given another; that closes
    the old one. So the table has one entry a client, whatever the length of the run. A lease that lapses frees the
    slot but not the right to be heard: a late update counts as long as the algorithm wants it and it is not staler
    than ``max_staleness``. Where there are rounds, one that still has free places when the last of its leases has ended
    waits for nobody else and ends with what is in.

    Args:
        algorithm: Started here, with ``model``.
        model: Initial model, float32 ``(d,)``.
        clients: Number of clients N.
        local: The run's plan for a visit.
        seed: The run's seed.
        lease_seconds: How long a slot is kept for a silent client.
        max_staleness: The largest staleness at which an update counts; None for any.
        data_weights: Each client's share of the objective, ``(N,)``; None for uniform.
        record: Called with every call that changed something, after it did; what it gets can be replayed.

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
        max_staleness: int | None = None,
        data_weights: Tensor | None = None,
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
        self._local = local
        self._lease_seconds = lease_seconds
        self._max_staleness = max_staleness
        self._record = record
        self._present: set[int] = set()
        self._pool = POOLS[algorithm.selection](clients, seed)  # who is present and may be assigned in this round
        self._round = algorithm.round
        self._had_turn: dict[int, None] = {}  # who was assigned or heard in this round, in order
        self._resting: dict[int, int] = {}  # who may not come again before a later round, and which
        self._returning: dict[int, list[int]] = {}  # the same, by round
        self._round_deadline = math.inf  # when the last lease of this round ends
        self._visits: dict[int, LatestVisit] = {}
        self._leases: list[tuple[float, int, int]] = []  # a heap of (end, client, visit); closed visits stay in it

    def present(self, now: float, client: int) -> None:
        """Note that the client is there and idle; nothing happens if that is known.

        Raises:
            ValueError: There is no such client.
        """
        check_client(client, self.clients)
        if client in self._present:
            return
        self._present.add(client)
        if client not in self._had_turn and client not in self._resting:
            self._pool.add(client)
        self._note("present", now=now, client=client)

    def absent(self, now: float, client: int) -> None:
        """Note that the client is not to be had for new work; nothing happens if that is known.

        Raises:
            ValueError: There is no such client.
        """
        check_client(client, self.clients)
        if client not in self._present:
            return
        self._present.discard(client)
        self._pool.discard(client)
        self._note("absent", now=now, client=client)

    def assign(self, now: float, clients: Iterable[int] | None = None) -> list[Assignment]:
        """Give work to as many idle clients as the algorithm wants and as there are.

        Args:
            now: Seconds.
            clients: Who it was, in a replay; so the records of who was present are not needed for one.
        """
        assignments: list[Assignment] = []
        if clients is not None:
            for client in clients:
                self._pool.take(client)
                assignments.append(self._assign(now, client))
        while clients is None and self._pool and self.algorithm.slots() > 0:
            assignments.append(self._assign(now, self._pool.pick()))
        if assignments:
            self._note("assign", now=now, clients=[assignment.client for assignment in assignments])
        return assignments

    def _assign(self, now: float, client: int) -> Assignment:
        plan = self.algorithm.assign(client, self._local)
        before = self._visits.get(client)
        counted = before.counted if before else None
        assignment = Assignment(
            client,
            visit=before.assignment.visit + 1 if before else 0,
            version=self.algorithm.version,
            plan=plan,
            lease_until=now + self._lease_seconds,
            since=counted[1] if counted else None,
        )
        if before is not None and before.state is VisitState.OPEN:
            self.statistics.lost += 1
        self._visits[client] = LatestVisit(assignment, VisitState.OPEN, counted=counted)
        self._present.discard(client)
        self._take_turn(client)
        if assignment.lease_until < math.inf:
            heapq.heappush(self._leases, (assignment.lease_until, client, assignment.visit))
            if self._round is not None and self.algorithm.period is None:
                self._round_deadline = assignment.lease_until
        self.statistics.assigned += 1
        return assignment

    def assignment(self, client: int) -> Assignment | None:
        """Return the client's assignment if its update is still expected, for one that lost the answer to its call."""
        latest = self._visits.get(client)
        return latest.assignment if latest and latest.state is not VisitState.CLOSED else None

    def offer(self, now: float, client: int, visit: int) -> Receipt | None:
        """Answer a client that is about to upload: None if it should, else what has become of its update.

        If the update would not count, the visit is over and the upload is saved. That may end a round, like ``drop``.

        Raises:
            ValueError: The client was never given this work.
        """
        latest = self._find(client, visit)
        answer = self._answered(latest, visit)
        if answer is None and not self._counts_now(latest):
            answer = self._refuse(latest)
            self._note("offer", now=now, client=client, visit=visit)
        return answer

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
    ) -> Receipt:
        """Take in the update of a visit; the other arguments are those of ``Update``.

        The vector's entries are not looked at: whoever made it has called ``check_vector``.

        An update that came already gets its first answer again, as long as it is the client's latest or its last
        counted one. One that came too late is acknowledged, counted as unused, and changes nothing else; that may end
        a round, like ``drop``.

        Raises:
            ValueError: The client was never given this work, or its update would count but is malformed; nothing has
                changed.
        """
        latest = self._find(client, visit)
        answer = self._answered(latest, visit)
        if answer is not None:
            return answer
        version = latest.assignment.version
        update = Update(client, version, vector, examples, steps, normaliser, base, since, step_seconds, upload_seconds)
        receipt = self._count(latest, update) if self._counts_now(latest) else self._refuse(latest)
        if self._record:
            arguments = {name: getattr(update, name) for name in update.__slots__ if name not in ("client", "version")}
            self._note("receive", now=now, client=client, visit=visit, **arguments)
        return receipt

    def drop(self, now: float, client: int, visit: int) -> bool:
        """Note that the client gave up; return whether that made a new version.

        Nothing happens if the visit is not open any more.

        Raises:
            ValueError: The client was never given this work.
        """
        latest = self._find(client, visit)
        if latest.assignment.visit != visit or latest.state is not VisitState.OPEN:
            return False
        new_version = self._let_lapse(latest)
        self._open_round_if_new()
        self._note("drop", now=now, client=client, visit=visit)
        return new_version

    def lapse(self, now: float) -> bool:
        """Let the leases lapse that have ended; return whether that made a new version."""
        changed = new_version = False
        while self._leases and self._leases[0][0] <= now:
            _, client, visit = heapq.heappop(self._leases)
            latest = self._visits[client]
            if latest.assignment.visit == visit and latest.state is VisitState.OPEN:
                changed = True
                new_version = self._let_lapse(latest) or new_version
                self._open_round_if_new()
        if self._round_deadline <= now:
            self._round_deadline = math.inf
            changed = True
            new_version = self.algorithm.tick() or new_version
            self._open_round_if_new()
        if changed:
            self._note("lapse", now=now)
        return new_version

    def next_lapse(self) -> float:
        """Return when ``lapse`` is to be called next, in seconds; infinity if no lease is running."""
        return min(self._leases[0][0] if self._leases else math.inf, self._round_deadline)

    def urgent(self) -> list[Assignment]:
        """Return the assignments of those in flight that should hand in now what they have so far.

        Their updates then come as others do, only with fewer steps.
        """
        return [self._visits[client].assignment for client in self.algorithm.urgent()]

    def tick(self, now: float) -> bool:
        """Note that one of the algorithm's periods has passed; return whether that made a new version."""
        new_version = self.algorithm.tick()
        self._open_round_if_new()
        self._note("tick", now=now)
        return new_version

    def replay(self, call: Call) -> None:
        """Make a recorded call again."""
        if call.name not in ("present", "absent", "assign", "offer", "receive", "drop", "lapse", "tick"):
            raise ValueError(f"{call.name!r} is no call that can be replayed")
        getattr(self, call.name)(**call.arguments)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values."""
        return {
            **prefixed("algorithm", self.algorithm.state_dict()),
            **prefixed("pool", self._pool.state_dict()),
            **prefixed("statistics", asdict(self.statistics)),
            "present": torch.tensor(sorted(self._present), dtype=torch.int64),
            "had_turn": torch.tensor(list(self._had_turn), dtype=torch.int64),
            "resting": torch.tensor(list(self._resting.items()), dtype=torch.int64).reshape(-1, 2),
            "round_deadline": self._round_deadline,
            "visits": [latest.to_plain(self._local) for latest in self._visits.values()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the arguments of the constructor must be the same."""
        self.algorithm.load_state_dict(under("algorithm", state))
        self._pool.load_state_dict(under("pool", state))
        self.statistics = Statistics(**under("statistics", state))
        self._present = set(state["present"].tolist())
        self._round = self.algorithm.round
        self._had_turn = dict.fromkeys(state["had_turn"].tolist())
        self._resting, self._returning = {}, {}
        for client, returns in state["resting"].tolist():
            self._rest(client, returns)
        self._round_deadline = state["round_deadline"]
        visits = [LatestVisit.from_plain(values, self._local) for values in state["visits"]]
        self._visits = {latest.assignment.client: latest for latest in visits}
        self._leases = [
            (latest.assignment.lease_until, latest.assignment.client, latest.assignment.visit)
            for latest in visits
            if latest.state is VisitState.OPEN and latest.assignment.lease_until < math.inf
        ]
        heapq.heapify(self._leases)

    def _find(self, client: int, visit: int) -> LatestVisit:
        check_client(client, self.clients)
        latest = self._visits.get(client)
        if latest is None or not 0 <= visit <= latest.assignment.visit:
            raise ValueError(f"client {client} was never given visit {visit}")
        return latest

    def _answered(self, latest: LatestVisit, visit: int) -> Receipt | None:
        """Return what the client was, or would have been, told of a visit that is over; None if it is not."""
        if latest.assignment.visit == visit:
            return latest.receipt
        if latest.counted and latest.counted[0] == visit:
            return latest.counted[2]
        # Of older visits only the last counted one is remembered; that this one is not it is all that is known.
        return Receipt(counted=False, staleness=self.algorithm.version - latest.assignment.version, new_version=False)

    def _counts_now(self, latest: LatestVisit) -> bool:
        client, _, version, *_ = latest.assignment
        too_stale = self._max_staleness is not None and self.algorithm.version - version > self._max_staleness
        return not too_stale and self.algorithm.wants(client, version)

    def _count(self, latest: LatestVisit, update: Update) -> Receipt:
        staleness = self.algorithm.version - update.version
        receipt = Receipt(counted=True, staleness=staleness, new_version=self.algorithm.receive(update))
        self._close(latest, receipt)
        latest.counted = (latest.assignment.visit, update.version, receipt)
        self._pool.counted(update.client, update.version)
        self.statistics.counted += 1
        self.statistics.staleness_sum += staleness
        self.statistics.staleness_max = max(self.statistics.staleness_max, staleness)
        if self.algorithm.round == self._round:
            self._take_turn(update.client)
        self._open_round_if_new()
        return receipt

    def _refuse(self, latest: LatestVisit) -> Receipt:
        """Close a visit whose update does not count, and free its slot."""
        staleness = self.algorithm.version - latest.assignment.version
        new_version = self.algorithm.drop(latest.assignment.client, latest.assignment.version)
        receipt = Receipt(counted=False, staleness=staleness, new_version=new_version)
        self._close(latest, receipt)
        self.statistics.unused += 1
        self._open_round_if_new()
        return receipt

    def _close(self, latest: LatestVisit, receipt: Receipt) -> None:
        if latest.state is VisitState.LAPSED:
            self.statistics.lost -= 1
        latest.state = VisitState.CLOSED
        latest.receipt = receipt

    def _let_lapse(self, latest: LatestVisit) -> bool:
        latest.state = VisitState.LAPSED
        self.statistics.lost += 1
        return self.algorithm.drop(latest.assignment.client, latest.assignment.version)

    def _take_turn(self, client: int) -> None:
        """Where there are rounds, keep the client from being assigned again in this one."""
        if self._round is not None:
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
        if client in self._present:
            self._pool.add(client)

    def _note(self, name: str, **arguments: Any) -> None:
        if self._record:
            self._record(Call(name, arguments))
