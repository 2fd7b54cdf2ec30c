"""The event loop: what happens when, and to whom."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from offbeat.coordinator import Assignment, Coordinator
from offbeat.errors import OffbeatError
from offbeat.population.devices import Devices
from offbeat.simulation.events import EventQueue, Kind
from offbeat.simulation.records import Evaluation, Stop, VisitEnded
from offbeat.simulation.work import DivergedError, Work, WorkQueue
from offbeat.training.trainer import Job, Trainer, normaliser

_BYTES_A_PARAMETER = 4
_MOST_IN_VAIN = 10_000


@dataclass(slots=True, eq=False)
class _Visit:
    assignment: Assignment
    assigned_seconds: float
    work: Work | None  # None: it will be lost
    base: Tensor | None  # the starting model, where the algorithm needs it


class Simulation:
    """Clients come and go in virtual time, and the coordinator deals with them.

    A visit: the client downloads the model, takes its local steps, asks whether its update is still wanted, and
    uploads it; then it is there for more. The update of a lost visit vanishes when the client is done training; the
    server learns of it when the lease lapses.

    When things happen does not depend on what is learnt, so time runs ahead and training is a promise, kept when a
    model is read that needs it.

    Args:
        coordinator: Fresh, with its algorithm started.
        devices: How fast each client computes and communicates, and how often its work is lost.
        trainer: Does the clients' work.
        evaluate: Maps a model ``(d,)`` to (mean loss, accuracy).
        evaluate_every_seconds: Virtual seconds between two evaluations.
        stop: When to end.
        seed: The run's seed.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        devices: Devices,
        trainer: Trainer,
        *,
        evaluate: Callable[[Tensor], tuple[float, float]],
        evaluate_every_seconds: float,
        stop: Stop,
        seed: int,
    ) -> None:
        length = coordinator.algorithm.model.numel()
        self._model_bytes = length * _BYTES_A_PARAMETER
        self.coordinator = coordinator
        self._algorithm = coordinator.algorithm
        self._devices = devices
        self._step_seconds: list[float] = devices.step_seconds.tolist()
        self._down_seconds: list[float] = (self._model_bytes / devices.down_bytes_per_second).tolist()
        self._up_seconds: list[float] = (self._model_bytes / devices.up_bytes_per_second).tolist()
        if not np.isfinite(self._down_seconds + self._up_seconds).all():
            raise OffbeatError("a client's transfer takes for ever: raise population.up_ and down_bytes_per_second")
        self._trainer = trainer
        self._evaluate = evaluate
        self._evaluate_every_seconds = evaluate_every_seconds
        self._stop = stop
        self._seed = seed
        self._work = WorkQueue(trainer, length)
        self._queue = EventQueue()
        self._assignment_due: float | None = None
        self._bytes_down = 0
        self._bytes_up = 0
        self._outcomes = {"counted": 0, "unused": 0, "lost": 0}
        self._evaluations = 0
        self._evaluated: tuple[int, float, float] | None = None  # version, loss and accuracy of the last evaluation
        self._in_vain = 0  # visits that have ended, and ticks, since an update counted
        self._handlers: dict[Kind, Callable[[float, Any], None]] = {
            Kind.ARRIVAL: self._arrive,
            Kind.OFFER: self._offer,
            Kind.LAPSE: self._lapse,
            Kind.TICK: self._tick,
            Kind.AVAILABILITY: self._become_available,
            Kind.ASSIGNMENT: self._assign,
        }
        self.ended: list[VisitEnded] = []

    def run(self) -> Iterator[Evaluation]:
        """Run to the end; yield each evaluation as it is made, the first at time 0, the last at the end.

        Raises:
            DivergedError: A client's training, or the model itself, went to NaN or infinity.
            OffbeatError: Nothing is left to happen before the end, or nothing counts any more.
        """
        for client in range(self.coordinator.clients):
            self._queue.put(0.0, Kind.AVAILABILITY, client)
        if self._algorithm.period is not None:
            self._queue.put(self._algorithm.period, Kind.TICK, 1)
        self._queue.put(0.0, Kind.EVALUATION)
        last: Evaluation | None = None
        now = 0.0
        while not self._has_reached_end():
            if self._queue.stands_still:
                raise OffbeatError(
                    f"nothing is left to happen at {now:g} virtual seconds: the server waits for lost clients; "
                    "set server.lease_seconds"
                )
            if self._queue.next_seconds > self._stop.virtual_seconds:
                now = self._stop.virtual_seconds
                break
            now, kind, _, subject = self._queue.take()
            if kind is Kind.EVALUATION:
                last = self._evaluation(now)
                yield last
                self._evaluations += 1
                self._queue.put(self._evaluations * self._evaluate_every_seconds, Kind.EVALUATION)
            else:
                self._handlers[kind](now, subject)
        if last is None or last.seconds < now or last.version < self._algorithm.version:
            yield self._evaluation(now)

    @property
    def model(self) -> Tensor:
        """The current model, float32 ``(d,)``."""
        return self._algorithm.model

    def _has_reached_end(self) -> bool:
        return (
            self._algorithm.version >= self._stop.versions or self.coordinator.statistics.counted >= self._stop.updates
        )

    def _become_available(self, now: float, client: int) -> None:
        self.coordinator.present(now, client)
        self._ask_for_assignment(now)

    def _ask_for_assignment(self, now: float) -> None:
        """Let work be given out at this instant, once, after all else that happens in it."""
        if self._assignment_due != now:
            self._assignment_due = now
            self._queue.put(now, Kind.ASSIGNMENT)

    def _assign(self, now: float, _: None) -> None:
        self._assignment_due = None
        assignments = self.coordinator.assign(now)
        if not assignments:
            return
        model = self._algorithm.model
        for assignment in assignments:
            client, number, version, plan = assignment[:4]
            work: Work | None = None
            if not self._is_lost(client, number):
                work = self._work.promise(Job(client, number, version, model, plan, self._algorithm.payload))
            visit = _Visit(assignment, now, work, base=model if self._algorithm.needs_base else None)
            self._bytes_down += self._model_bytes
            trained = now + self._down_seconds[client] + plan.steps * self._step_seconds[client]
            self._queue.put(trained, Kind.OFFER, visit)
        # The leases of one instant end together.
        lease_until = assignments[0].lease_until
        if lease_until < math.inf:
            self._queue.put(lease_until, Kind.LAPSE)

    def _is_lost(self, client: int, number: int) -> bool:
        return (
            self._devices.loss_probability[client] > 0
            and self._devices.visit_is_lost(self._seed, client, number).item()
        )

    def _offer(self, now: float, visit: _Visit) -> None:
        client, number, *_ = visit.assignment
        if visit.work is None:
            self._end(now, visit, None, 0, "lost")
            return
        answer = self.coordinator.offer(now, client, number)
        if answer is None:
            self._queue.put(now + self._up_seconds[client], Kind.ARRIVAL, visit)
        else:
            self._end(now, visit, answer.staleness, 0, "unused")

    def _arrive(self, now: float, visit: _Visit) -> None:
        client, number, _, plan, *_ = visit.assignment
        assert visit.work is not None
        receipt = self.coordinator.receive(
            now,
            client,
            number,
            visit.work,
            examples=self._trainer.examples(client),
            steps=plan.steps,
            normaliser=normaliser(plan),
            base=visit.base,
            step_seconds=self._step_seconds[client],
            upload_seconds=self._up_seconds[client],
        )
        self._bytes_up += self._model_bytes
        self._end(now, visit, receipt.staleness, self._model_bytes, "counted" if receipt.counted else "unused")

    def _end(self, now: float, visit: _Visit, staleness: int | None, bytes_up: int, outcome: str) -> None:
        client, number, version, *_ = visit.assignment
        if outcome == "unused" and visit.work is not None:
            self._work.cancel(visit.work)
        self._outcomes[outcome] += 1
        self._in_vain = 0 if outcome == "counted" else self._in_vain + 1
        self._check_progress(now)
        self.ended.append(
            VisitEnded(
                client, number, version, staleness, visit.assigned_seconds, now, self._model_bytes, bytes_up, outcome
            )
        )
        self._queue.put(now, Kind.AVAILABILITY, client)

    def _lapse(self, now: float, _: None) -> None:
        self.coordinator.lapse(now)
        self._ask_for_assignment(now)

    def _tick(self, now: float, number: int) -> None:
        assert self._algorithm.period is not None
        self.coordinator.tick(now)
        self._in_vain += 1
        self._check_progress(now)
        self._queue.put((number + 1) * self._algorithm.period, Kind.TICK, number + 1)
        self._ask_for_assignment(now)

    def _check_progress(self, now: float) -> None:
        if self._in_vain > max(_MOST_IN_VAIN, 10 * self.coordinator.clients):
            raise OffbeatError(
                f"no update counted in the last {self._in_vain} visits and ticks, up to {now:g} virtual seconds: "
                "change server.lease_seconds or server.max_staleness"
            )

    def _evaluation(self, now: float) -> Evaluation:
        version = self._algorithm.version
        if self._evaluated is None or self._evaluated[0] != version:
            self._evaluated = (version, *self._evaluate(self._algorithm.model))
        _, loss, accuracy = self._evaluated
        if not math.isfinite(loss):
            raise DivergedError(f"the model of version {version} has the test loss {loss}: lower server_lr or local.lr")
        return Evaluation(
            now,
            version,
            self._outcomes["counted"],
            self._outcomes["unused"],
            self._outcomes["lost"],
            self._bytes_down,
            self._bytes_up,
            accuracy,
            loss,
        )
