"""The event loop: what happens when, and to whom."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components import Algorithm, LocalPlan
from offbeat.algorithms.components.state import prefixed, under
from offbeat.coordinator import Coordinator
from offbeat.coordinator.calls import Assignment
from offbeat.errors import OffbeatError
from offbeat.population.devices.devices import Devices
from offbeat.simulation.events import EventQueue, Kind
from offbeat.simulation.records import Evaluation, Stop, VisitEnded
from offbeat.simulation.timing import Timing
from offbeat.simulation.visit import Visit, visits_from_state, visits_state
from offbeat.simulation.work import DivergedError, Memory, WorkQueue
from offbeat.training.sending import upload_bytes
from offbeat.training.trainers.trainer import Job, Trainer, normaliser

_BYTES_A_PARAMETER = 4
_MOST_IN_VAIN = 10_000
# Sums of floats that are this near to a tick, relatively, would be at it but for rounding.
_SAME_INSTANT = 1e-12


class Simulation:
    """Clients come and go in virtual time, and the coordinator deals with them.

    A visit: the client downloads the model, takes its local steps, asks whether its update is still wanted, and
    uploads it; then it is there for more. The update of a lost visit vanishes when the client is done training, or
    when it goes away; the server learns of it when the lease lapses. A client that is asked for what it has so far
    hears of it at once, finishes the step that it is at, at least its first, and uploads that.

    What a client remembers from visit to visit it remembers once the server has counted the visit.

    Where the algorithm plans by speed, a client that comes for its first visit reports how long a step takes, and how
    long a whole upload would that began at once and never paused. That costs neither time nor bytes.

    When things happen does not depend on what is learnt, so time runs ahead and training is a promise, kept when a
    model is read that needs it.

    Args:
        coordinator: Fresh, with its algorithm started.
        devices: How fast each client computes and communicates, when it is there, and how often its work is lost.
        trainer: Does the clients' work.
        evaluate: Maps a model ``(d,)`` to (mean loss, metrics by name).
        evaluate_every_seconds: Virtual seconds between two evaluations; infinite for none.
        evaluate_every_versions: Evaluate also at the end of each instant at which the version reaches or passes a
            multiple of this; infinite for never. One of the two is finite at most.
        stop: When to end.
        seed: The run's seed.

    Attributes:
        ended: The visits that have ended; whoever reads them may take them out.
        finished: Whether the end is reached; ``step`` must not be called any more.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        devices: Devices,
        trainer: Trainer,
        *,
        evaluate: Callable[[Tensor], tuple[float, dict[str, float]]],
        evaluate_every_seconds: float = math.inf,
        evaluate_every_versions: float = math.inf,
        stop: Stop,
        seed: int,
    ) -> None:
        length = coordinator.algorithm.model.numel()
        self._length = length
        self._model_bytes = 0 if coordinator.algorithm.pooled else length * _BYTES_A_PARAMETER
        # The model, and what goes to clients beside it.
        self._corrects_gradients = coordinator.algorithm.corrects_gradients
        self._down_bytes = self._model_bytes * (2 if self._corrects_gradients else 1)
        self.coordinator = coordinator
        self._algorithm = coordinator.algorithm
        # Who may be asked for what it has may have been trained further by then, and is trained anew.
        self._asks_early = type(self._algorithm).urgent is not Algorithm.urgent
        self._cancels = type(self._algorithm).cancelled is not Algorithm.cancelled
        self._has_deadline = type(self._algorithm).deadline is not Algorithm.deadline
        # Where every update counts whenever it comes, the answer to an offer is known, and the event saved. Periods
        # move events that are next to a tick onto it, so there all events are needed.
        self._asks_first = self._asks_early or coordinator.may_refuse or self._algorithm.period is not None
        self._keeps_start = self._algorithm.needs_base or self._asks_early
        self._devices = devices
        self._availability = devices.availability
        self._timing = Timing(devices, self._model_bytes)
        self._step_seconds = array("d", devices.step_seconds)
        self._measures = coordinator.algorithm.measures
        self._lossy = (devices.loss_probability > 0).tobytes()
        self._trainer = trainer
        self._evaluate = evaluate
        self._evaluate_every_seconds = evaluate_every_seconds
        self._evaluate_every_versions = evaluate_every_versions
        self._evaluate_at_version = math.inf  # infinite also while that evaluation is in the queue
        self._stop = stop
        self._seed = seed
        self._work = WorkQueue(trainer, length, seed)
        self._queue = EventQueue()
        self._visits: dict[int, Visit] = {}  # by client
        self._memories: dict[int, Memory] = {}  # of each client's last counted visit, where there is something
        self._deadline = math.inf  # the algorithm's latest that is in the queue
        self._departures: dict[int, float] = {}  # when a client goes away, where that is in the queue
        self._idle: list[int] = []  # who has become idle at this instant, in order
        self._assignment_due = False  # at this instant, after all else that happens in it
        self._bytes_down = 0
        self._bytes_up = 0
        self._outcomes = {"counted": 0, "unused": 0, "lost": 0}
        self._last: Evaluation | None = None
        self._in_vain = 0  # visits that have ended, and ticks, since an update counted
        self._last_plan: LocalPlan | None = None
        self._last_normaliser = 0.0
        self._handlers: dict[int, Callable[[float, int], None]] = {
            Kind.ARRIVAL: self._arrive,
            Kind.OFFER: self._offer,
            Kind.LOSS: self._lose,
            Kind.LAPSE: self._lapse,
            Kind.TICK: self._tick,
            Kind.DEPARTURE: self._depart,
            Kind.AVAILABILITY: self._become_available,
        }
        self._now = 0.0
        self.ended: list[VisitEnded] = []
        self.finished = False
        for client in range(coordinator.clients):
            self._expect(client, 0.0)
        if self._algorithm.period is not None:
            self._queue.put(self._algorithm.period, Kind.TICK, 1)
        self._queue.put(0.0, Kind.EVALUATION)
        self._look_at_version()

    def run(self) -> Iterator[Evaluation]:
        """Run to the end; yield each evaluation as it is made, the first at time 0, the last at the end.

        Raises:
            DivergedError: A client's training, or the model itself, went to NaN or infinity.
            OffbeatError: Nothing is left to happen before the end, nothing counts any more, or a visit never ends.
        """
        try:
            while not self.finished:
                evaluation = self.step()
                if evaluation is not None:
                    yield evaluation
        finally:
            self.close()

    def step(self) -> Evaluation | None:
        """Let the next thing happen, and return the evaluation if it is one; raises like ``run``."""
        if self._is_at_end:
            return self._finish(self._now)
        if self._assignment_due and self._queue.is_over(self._now):
            self._assign(self._now)
            return None
        if not self._queue.at_work and self._stop.virtual_seconds == math.inf and self._stands_still():
            raise OffbeatError(
                f"nothing is left to happen at {self._now:g} virtual seconds: nobody comes back, or the server waits "
                "for lost clients; set stop.virtual_seconds or server.lease_seconds"
            )
        if self._queue.next_seconds > self._stop.virtual_seconds:
            return self._finish(self._stop.virtual_seconds)
        self._now, kind, _, subject = self._queue.take()
        if kind == Kind.EVALUATION:
            if self._evaluate_every_seconds < math.inf:
                self._queue.put((subject + 1) * self._evaluate_every_seconds, Kind.EVALUATION, subject + 1)
            return self._evaluation(self._now)
        self._handlers[kind](self._now, subject)
        if self._has_deadline:
            self._expect_deadline()
        return None

    def diverged(self, metrics: Iterable[str]) -> Evaluation:
        """Return the end of a run that has raised ``DivergedError``: loss and metrics, which are named, are NaN."""
        return self._record(self._now, math.nan, dict.fromkeys(metrics, math.nan))

    def close(self) -> None:
        """End the trainer's processes, if it has any."""
        self._trainer.close()

    @property
    def trainer(self) -> str:
        """The name of the trainer, on which the last bits of the model depend."""
        return self._trainer.name

    @property
    def model(self) -> Tensor:
        """What the run has learnt so far, float32 ``(d,)``."""
        return self._algorithm.result

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values; ``ended`` is not in it."""
        return {
            # First, since it trains what the algorithm has counted, along with some of what the visits hold.
            **prefixed("coordinator", self.coordinator.state_dict()),
            **self._memories_state(),
            **prefixed("visits", visits_state(self._visits)),
            **prefixed("queue", self._queue.state_dict()),
            "now": self._now,
            "idle": list(self._idle),
            "assignment_due": self._assignment_due,
            "deadline": self._deadline,
            "departures": list(self._departures.items()),
            "bytes": [self._bytes_down, self._bytes_up],
            "outcomes": dict(self._outcomes),
            "last": self._last,
            "evaluate_at_version": self._evaluate_at_version,
            "in_vain": self._in_vain,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the arguments of the constructor must be the same."""
        self.coordinator.load_state_dict(under("coordinator", state))
        memories = zip(state["memories_of"].tolist(), state["memories"], strict=True)
        self._memories = {client: Memory(None, memory.clone()) for client, memory in memories}
        self._visits = visits_from_state(under("visits", state), self.coordinator, self._work, self._memories)
        self._queue.load_state_dict(under("queue", state))
        self._now = state["now"]
        self._idle = list(state["idle"])
        self._assignment_due = state["assignment_due"]
        self._deadline = state["deadline"]
        self._departures = dict(state["departures"])
        self._bytes_down, self._bytes_up = state["bytes"]
        self._outcomes = dict(state["outcomes"])
        self._last = None if state["last"] is None else Evaluation(*state["last"])
        self._evaluate_at_version = state["evaluate_at_version"]
        self._in_vain = state["in_vain"]
        self._look_at_version()

    def _memories_state(self) -> dict[str, Any]:
        memories = [memory.resolve() for memory in self._memories.values()]
        return {
            "memories_of": torch.tensor(list(self._memories), dtype=torch.int64),
            "memories": torch.stack(memories) if memories else torch.zeros(0, self._length),
        }

    def _look_at_version(self) -> None:
        """Called after all that can make a version: is this the end, or is it to be evaluated?"""
        stop, counted, version = self._stop, self.coordinator.statistics.counted, self._algorithm.version
        self._is_at_end = version >= stop.versions or counted >= stop.updates
        if version >= self._evaluate_at_version:
            # It comes last in this instant, and so sees what else is made in it.
            self._queue.put(self._now, Kind.EVALUATION)
            self._evaluate_at_version = math.inf

    def _stands_still(self) -> bool:
        return self._queue.stands_still or (self._algorithm.period is None and self._waits_for_lost_clients())

    def _waits_for_lost_clients(self) -> bool:
        """Return whether all places are taken by clients that are not at work: those who come find none."""
        return not self._queue.at_work and self._algorithm.slots() <= 0

    def _finish(self, now: float) -> Evaluation | None:
        self.finished = True
        if self._last is None or self._last.seconds < now or self._last.version < self._algorithm.version:
            return self._evaluation(now)
        return None

    def _expect(self, client: int, now: float) -> None:
        """Let an idle client be there when it next is."""
        seconds = self._availability.next_available(client, now)
        if seconds == now:
            self._idle.append(client)
            self._assignment_due = True
        elif seconds < math.inf:
            self._queue.put(seconds, Kind.AVAILABILITY, client)

    def _become_available(self, now: float, client: int) -> None:
        if self._measures and self.coordinator.wants_speed(client):
            upload_seconds = self._devices.up.transfer_end(client, now, self._model_bytes) - now
            self.coordinator.note_speed(now, client, self._step_seconds[client], upload_seconds)
        self.coordinator.present(now, client)
        away = self._availability.next_offline(client, now)
        if away < math.inf and self._departures.get(client) != away:
            self._departures[client] = away
            self._queue.put(away, Kind.DEPARTURE, client)
        self._assignment_due = True

    def _depart(self, now: float, client: int) -> None:
        del self._departures[client]
        if client not in self._visits:
            self.coordinator.absent(now, client)
            self._expect(client, now)

    def _assign(self, now: float) -> None:
        """Give out work at the end of an instant."""
        for client in self._idle:
            self._become_available(now, client)
        self._idle.clear()
        self._assignment_due = False
        assignments = self.coordinator.assign(now)
        if assignments:
            model, down = self._algorithm.model, self._algorithm.down() if self._corrects_gradients else None
            for assignment in assignments:
                self._begin(now, assignment, model, down)
            # The leases of one instant end together.
            lease_until = assignments[0].lease_until
            if lease_until < math.inf:
                self._queue.put(lease_until, Kind.LAPSE)
        if self._asks_early:
            for assignment in self.coordinator.urgent():
                self._cut_short(now, assignment)
        if self._cancels:
            for assignment in self.coordinator.cancelled():
                self._cancel_visit(now, assignment)
        if self._has_deadline:
            self._expect_deadline()

    def _expect_deadline(self) -> None:
        deadline = self._algorithm.deadline()
        if deadline < math.inf and deadline != self._deadline:
            self._deadline = deadline
            self._queue.put(max(deadline, self._now), Kind.LAPSE)

    def _begin(self, now: float, assignment: Assignment, model: Tensor, down: Tensor | None) -> None:
        client, plan = assignment.client, assignment.plan
        visit = Visit(assignment, now, plan, start=model if self._keeps_start else None)
        if down is not None:
            memory = self._memories.get(client)
            visit.offset = down.clone() if memory is None else down - memory.resolve()
        self._visits[client] = visit
        self._bytes_down += self._down_bytes
        download = self._timing.download(client, now, self._down_bytes)
        if download.left:
            self._happen(visit, download.seconds, Kind.LOSS)
            return
        visit.steps_began = download.seconds
        ending = self._timing.compute(client, download.seconds, plan.steps)
        if ending.left or self._is_lost(assignment):
            self._happen(visit, ending.seconds, Kind.LOSS)
            return
        self._train(visit, model)
        if self._asks_first or ending.seconds == math.inf:
            self._happen(visit, ending.seconds, Kind.OFFER)
        else:
            self._upload(visit, ending.seconds)

    def _train(self, visit: Visit, start: Tensor) -> None:
        client, number, version, *_ = visit.assignment
        job = Job(client, number, version, start, visit.plan, self._algorithm.payload, visit.offset)
        visit.work = self._work.promise(job, self._memories.get(client))

    def _happen(self, visit: Visit, seconds: float, kind: int) -> None:
        """Let this be the next thing that happens to the visit; never, if the seconds are infinite."""
        period = self._algorithm.period
        if period is not None and seconds < math.inf:
            tick = round(seconds / period) * period
            seconds = tick if self._now <= tick and abs(seconds - tick) <= _SAME_INSTANT * seconds else seconds
        visit.next_seconds, visit.next_kind = seconds, kind
        if seconds < math.inf:
            self._queue.put(seconds, kind, visit.assignment.client)

    def _visit_if_next(self, client: int, now: float, kind: int) -> Visit | None:
        """Return the client's visit if this is still to happen to it, and it has not been cut short since."""
        visit = self._visits.get(client)
        return visit if visit is not None and visit.next_seconds == now and visit.next_kind == kind else None

    def _cut_short(self, now: float, assignment: Assignment) -> None:
        """Let a client that is at its local steps hand in what it has after the step that it is at."""
        client = assignment.client
        visit = self._visits.get(client)
        if visit is None or not visit.may_be_cut_short or self._is_lost(assignment):
            return
        began, whole = visit.steps_began, assignment.plan
        steps = 1 + bisect_left(
            range(1, whole.steps), now, key=lambda steps: self._timing.compute(client, began, steps).seconds
        )
        ending = self._timing.compute(client, began, steps)
        if steps == whole.steps or ending.left:
            return
        assert visit.start is not None
        self._cancel(visit)
        visit.plan = whole.prefix(steps)
        self._train(visit, visit.start)
        self._happen(visit, ending.seconds, Kind.OFFER)

    def _cancel_visit(self, now: float, assignment: Assignment) -> None:
        """Let a client stop whose update is not wanted any more, unless its upload has begun or will be lost."""
        visit = self._visits.get(assignment.client)
        if visit is None or visit.work is None or visit.upload_began < math.inf:
            return
        answer = self.coordinator.offer(now, assignment.client, assignment.visit)
        if answer is not None:
            self._end(now, assignment.client, "unused", answer.staleness)

    def _is_lost(self, assignment: Assignment) -> bool:
        client, number, *_ = assignment
        return self._lossy[client] > 0 and self._devices.visit_is_lost(self._seed, client, number)

    def _offer(self, now: float, client: int) -> None:
        visit = self._visit_if_next(client, now, Kind.OFFER)
        if visit is None:
            return
        answer = self.coordinator.offer(now, client, visit.assignment.visit)
        if answer is not None:
            self._end(now, client, "unused", answer.staleness)
            return
        self._upload(visit, now)

    def _upload(self, visit: Visit, now: float) -> None:
        visit.upload_began = now
        size = self._upload_bytes(visit)
        ending = self._timing.upload(visit.assignment.client, now, size)
        if ending.left:
            self._cancel(visit)
            visit.sent = size - math.ceil(ending.left)
            self._happen(visit, ending.seconds, Kind.LOSS)
        else:
            self._happen(visit, ending.seconds, Kind.ARRIVAL)

    def _upload_bytes(self, visit: Visit) -> int:
        return upload_bytes(visit.plan, self._length) if visit.plan.compression else self._model_bytes

    def _lose(self, now: float, client: int) -> None:
        visit = self._visit_if_next(client, now, Kind.LOSS)
        if visit is not None:
            self._end(now, client, "lost", None, visit.sent)

    def _arrive(self, now: float, client: int) -> None:
        visit = self._visit_if_next(client, now, Kind.ARRIVAL)
        if visit is None:
            return
        size = self._upload_bytes(visit)
        assert visit.work is not None
        if self._algorithm.needs_loss:
            visit.work.resolve()
        receipt = self.coordinator.receive(
            now,
            client,
            visit.assignment.visit,
            visit.work,
            examples=self._trainer.examples(client),
            steps=visit.plan.steps,
            normaliser=self._normaliser(visit.plan),
            base=visit.start if self._algorithm.needs_base else None,
            since=visit.assignment.since,
            step_seconds=self._step_seconds[client],
            upload_seconds=(now - visit.upload_began) * (self._model_bytes / size if size else 1),
            loss=visit.work.loss if self._algorithm.needs_loss else None,
        )
        if receipt.counted and visit.work.memory is not None:
            self._memories[client] = visit.work.memory
        self._end(now, client, "counted" if receipt.counted else "unused", receipt.staleness, size)

    def _normaliser(self, plan: LocalPlan) -> float:
        # Most visits have the very plan of the one before: to look at that is cheaper than to hash it.
        if plan is not self._last_plan:
            self._last_plan, self._last_normaliser = plan, normaliser(plan)
        return self._last_normaliser

    def _cancel(self, visit: Visit) -> None:
        if visit.work is not None:
            self._work.cancel(visit.work)
            visit.work = None

    def _end(self, now: float, client: int, outcome: str, staleness: int | None, bytes_up: int = 0) -> None:
        visit = self._visits.pop(client)
        if outcome == "unused":
            self._cancel(visit)
        self._bytes_up += bytes_up
        self._outcomes[outcome] += 1
        if outcome == "counted":
            self._in_vain = 0
        else:
            self._in_vain += 1
            self._check_progress(now)
        self._look_at_version()
        _, number, version, *_ = visit.assignment
        self.ended.append(
            VisitEnded(
                client, number, version, staleness, visit.assigned_seconds, now, self._down_bytes, bytes_up, outcome
            )
        )
        # Also if the client goes away at this very instant: its slot may be free for another.
        self._assignment_due = True
        self._expect(client, now)

    def _lapse(self, now: float, _: int) -> None:
        self.coordinator.lapse(now)
        self._look_at_version()
        self._assignment_due = True

    def _tick(self, now: float, number: int) -> None:
        assert self._algorithm.period is not None
        self.coordinator.tick(now)
        self._look_at_version()
        # While something else is to happen, ticks in between say nothing.
        self._in_vain += self._queue.only_ticks or self._waits_for_lost_clients()
        self._check_progress(now)
        self._queue.put((number + 1) * self._algorithm.period, Kind.TICK, number + 1)
        self._assignment_due = True

    def _check_progress(self, now: float) -> None:
        if self._in_vain > max(_MOST_IN_VAIN, 10 * self.coordinator.clients):
            raise OffbeatError(
                f"no update counted in the last {self._in_vain} visits and ticks, up to {now:g} virtual seconds: "
                "change server.lease_seconds, server.max_staleness or population.availability"
            )

    def _check_steps(self) -> None:
        """Raise ``DivergedError`` if the algorithm refused a server step; called after the model was read."""
        for version, reason in getattr(self._algorithm, "refused_steps", {}).items():
            raise DivergedError(f"the step from version {version} was refused: {reason}; lower server_lr or local.lr")

    def _record(self, now: float, loss: float, metrics: dict[str, float]) -> Evaluation:
        return Evaluation(
            now,
            self._algorithm.version,
            self._outcomes["counted"],
            self._outcomes["unused"],
            self._outcomes["lost"],
            self._bytes_down,
            self._bytes_up,
            loss,
            metrics,
        )

    def _evaluation(self, now: float) -> Evaluation:
        version = self._algorithm.version
        if self._last is not None and self._last.version == version:
            loss, metrics = self._last.loss, self._last.metrics
        else:
            loss, metrics = self._evaluate(self._algorithm.result)
            self._check_steps()
        if not math.isfinite(loss):
            raise DivergedError(f"the model of version {version} has the test loss {loss}: lower server_lr or local.lr")
        self._last = self._record(now, loss, metrics)
        self._evaluate_at_version = (version // self._evaluate_every_versions + 1) * self._evaluate_every_versions
        return self._last
