"""The event loop of a simulation."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator import Coordinator
from offbeat.early_stop import EarlyStop
from offbeat.population.devices.client_devices import Devices
from offbeat.simulation.attendance import Attendance
from offbeat.simulation.client_time import ClientTime
from offbeat.simulation.clock import Clock, StallGuard
from offbeat.simulation.evaluations import ClientEvaluation, Evaluate, Evaluations, EvaluationsByClients
from offbeat.simulation.events import EventQueue, Kind
from offbeat.simulation.totals import Evaluation, Stop, Totals, VisitEnded
from offbeat.simulation.visit_costs import PlanCosts
from offbeat.simulation.visit_stages import VisitStages
from offbeat.training.trainers.trainer import Trainer

if TYPE_CHECKING:  # a simulation without masks needs no cryptography
    from offbeat.simulation.masked_updates import MaskedUpdates


class Simulation:
    """Clients in virtual time, and the coordinator that gives them work.

    Read ``step`` first. The parts that it calls put events into one queue, and each handles its own kinds:

    - ``VisitStages``: a client downloads the model, takes its local steps, offers its update and uploads it;
    - ``Attendance``: clients become available and go offline;
    - ``Clock``: leases end, the algorithm's deadline and its periods pass. A second clock is a part beside it: a
      ``Kind`` that says what comes first at one instant, a line in ``_handlers``, and a first event in ``__init__``;
    - ``Evaluations``: the model is evaluated. ``StallGuard`` ends a run that does not make progress.

    An update that is lost vanishes when its client has trained, or when it goes offline; the server learns of it when
    the lease ends, or when the client is assigned again. A client that is asked for a partial update hears of it at
    once, finishes its local step, at least its first, and uploads. A client keeps its memory of a visit once the server
    has counted the visit.

    The times of events do not depend on the training, so training is deferred until a model is read that needs its
    result.

    Args:
        coordinator: Fresh, with its algorithm started.
        devices: How fast each client computes and communicates, when it is online, and how often its work is lost.
        trainer: Does the clients' work.
        evaluate: Maps a model ``(d,)`` to (mean loss, metrics by name).
        evaluate_every_seconds: Virtual seconds between two evaluations; infinite for none.
        evaluate_every_versions: Evaluate at the end of each instant at which the version reaches or passes a multiple
            of this; infinite for never. At most one of the two is finite.
        stop: The end.
        early_stop: The end by a metric; None if there is none.
        seed: The run's seed.
        masked: How clients mask their updates; None for updates in the clear.
        clients: Evaluates versions on clients; None if they do not evaluate.
        length: The number of parameters that a transfer has; None for that of the algorithm's model.

    Attributes:
        ended: The visits that have ended; a reader may remove them.
        evaluated_by: The clients' evaluations; a reader may remove them.
        client_time: The time that clients have waited and worked so far.
        finished: Whether the end is reached; ``step`` must not be called any more.
        workload: What the trainer trains.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        devices: Devices,
        trainer: Trainer,
        *,
        evaluate: Evaluate,
        evaluate_every_seconds: float = math.inf,
        evaluate_every_versions: float = math.inf,
        stop: Stop,
        seed: int,
        masked: "MaskedUpdates | None" = None,
        clients: EvaluationsByClients | None = None,
        early_stop: EarlyStop | None = None,
        length: int | None = None,
    ) -> None:
        algorithm = coordinator.algorithm
        length = algorithm.model.numel() if length is None else length
        costs = PlanCosts(algorithm, length, 0 if masked is None else masked.share_bytes)
        queue = EventQueue()
        self.coordinator = coordinator
        self.ended: list[VisitEnded] = []
        self.client_time = ClientTime(coordinator.clients)
        self.finished = False
        self._stop = stop
        self._early_stop = early_stop
        self.workload = trainer.workload
        self._trainer = trainer
        self._now = 0.0
        self._queue = queue
        self._totals = Totals()
        self._guard = StallGuard(coordinator, queue, end_seconds=stop.virtual_seconds)
        self._stages = VisitStages(
            coordinator, devices, trainer, queue, costs, self._totals, seed=seed, masked=masked, on_end=self._end_visit
        )
        self._masked = masked
        self._attendance = Attendance(
            coordinator, devices, queue, model_bytes=costs.model_bytes, at_work=self._stages.visits
        )
        self._clock = Clock(coordinator, queue, self._attendance, self._guard)
        self._evaluations = Evaluations(
            algorithm,
            queue,
            self._totals,
            evaluate,
            every_seconds=evaluate_every_seconds,
            every_versions=evaluate_every_versions,
            clients=clients,
        )
        self.evaluated_by: list[ClientEvaluation] = [] if clients is None else clients.made
        self._handlers: dict[int, Callable[[float, int], None]] = {
            Kind.ARRIVAL: self._stages.arrive,
            Kind.OFFER: self._stages.offer,
            Kind.LOSS: self._stages.lose,
            Kind.LAPSE: self._clock.lapse,
            Kind.TICK: self._clock.tick,
            Kind.DEPARTURE: self._attendance.depart,
            Kind.AVAILABILITY: self._attendance.arrive,
        }
        for client in range(coordinator.clients):
            self._attendance.expect(client, 0.0)
        self._clock.start()
        queue.put(0.0, Kind.EVALUATION)

    def run(self) -> Iterator[Evaluation]:
        """Run to the end; yield each evaluation as it is made.

        The first is at time 0, the last at the end.

        Raises:
            DivergedError: A client's training, or the model itself, went to NaN or infinity.
            OffbeatError: Nothing is left to happen before the end, updates no longer count, or a visit never ends.
        """
        try:
            while not self.finished:
                evaluation = self.step()
                if evaluation is not None:
                    yield evaluation
        finally:
            self.close()

    def step(self) -> Evaluation | None:
        """Handle the next event, or assign work at the end of an instant.

        Returns the evaluation if one was made. Raises the exceptions of ``run``.
        """
        if self._stop.is_reached(self.coordinator.algorithm.version, self.coordinator.statistics.counted):
            return self._finish(self._now)
        if self._attendance.assignment_due and self._queue.is_over(self._now):
            self._assign()
            return None
        self._guard.check_future(self._now)
        if self._queue.next_seconds > self._stop.virtual_seconds:
            return self._finish(self._stop.virtual_seconds)
        seconds, kind, _, subject = self._queue.take()
        self._advance(seconds)
        if kind == Kind.EVALUATION:
            return self._evaluate(subject)
        self._handlers[kind](self._now, subject)
        if self._masked is not None:
            self._masked.open(self._now, self.coordinator)
        self._evaluations.expect(self._now)
        self._clock.expect_deadline(self._now)
        return None

    def _advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        if seconds > self._now:
            self.client_time.add(seconds - self._now, waiting=self.coordinator.idle, working=len(self._stages.visits))
            self._now = seconds

    def _evaluate(self, number: int) -> Evaluation:
        """Make an evaluation, which may end the run."""
        evaluation = self._evaluations.happen(self._now, number)
        if self._early_stop is not None:
            self._early_stop.note(evaluation.version, {"loss": evaluation.loss, **evaluation.metrics})
            self.finished = self._early_stop.is_reached
        return evaluation

    def _assign(self) -> None:
        """Assign work from the newest version of this instant, after all its other events."""
        self._attendance.begin_assignment(self._now)
        assignments = self.coordinator.assign(self._now)
        if assignments:
            self._stages.begin(self._now, assignments)
            self._clock.expect_lapse(assignments[0].lease_until)  # leases of one instant end together
        self._stages.follow_requests(self._now)
        self._evaluations.expect(self._now)
        self._clock.expect_deadline(self._now)

    def _end_visit(self, ended: VisitEnded) -> None:
        """Count a visit that has ended, and let its client be idle."""
        self._totals.add(ended)
        self._guard.note_visit(ended.ended_seconds, ended.outcome)
        self.ended.append(ended)
        # Also if the client goes offline at this very instant: its slot may be free for another.
        self._attendance.assignment_due = True
        self._attendance.expect(ended.client, ended.ended_seconds)

    def _finish(self, now: float) -> Evaluation | None:
        self._advance(now)
        self.finished = True
        return self._evaluations.last(now)

    def diverged(self, metrics: Iterable[str]) -> Evaluation:
        """Return the last evaluation of a run that raised ``DivergedError``.

        Its displacement, loss and metrics are NaN.
        """
        version = self.coordinator.algorithm.version
        return self._totals.evaluation(self._now, version, math.nan, math.nan, dict.fromkeys(metrics, math.nan))

    def close(self) -> None:
        """End the trainer's processes, if it has any."""
        self._trainer.close()

    @property
    def now(self) -> float:
        """The virtual time, in seconds."""
        return self._now

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """The bytes so far to and from clients."""
        return self._totals.bytes_down, self._totals.bytes_up

    @property
    def trainer(self) -> str:
        """The name of the trainer, on which the last bits of the model depend."""
        return self._trainer.name

    @property
    def kernel(self) -> str:
        """The name of the computation that the trainer does."""
        return self._trainer.kernel

    @property
    def notes(self) -> Sequence[str]:
        """The facts of the training that a user should know."""
        return self._trainer.notes

    @property
    def model(self) -> Tensor:
        """The result of the run so far, float32 ``(d,)``."""
        return self.coordinator.algorithm.result

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a restart needs, except ``ended``.

        The dict is flat and holds tensors and plain values.
        """
        state: dict[str, Any] = {
            # First, since it trains the updates that the algorithm has counted, along with some of the visits' jobs.
            **prefixed("coordinator", self.coordinator.state_dict()),
            **self._stages.state_dict(),
            **prefixed("queue", self._queue.state_dict()),
            "now": self._now,
        }
        for part in self._parts():
            state |= part.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state; the arguments of the constructor must be the same."""
        state = self._on_device(state)
        self.coordinator.load_state_dict(under("coordinator", state))
        self._stages.load_state_dict(state)
        self._queue.load_state_dict(under("queue", state))
        self._now = state["now"]
        for part in self._parts():
            part.load_state_dict(state)

    def _on_device(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state whose vectors, ``(…, d)``, lie where the run's model lies."""
        model = self.coordinator.algorithm.model
        return {
            key: value.to(model.device) if isinstance(value, Tensor) and value.shape[-1:] == model.shape else value
            for key, value in state.items()
        }

    def _parts(self) -> tuple[Attendance | ClientTime | Clock | EarlyStop | Evaluations | StallGuard | Totals, ...]:
        """Return the parts whose saved numbers lie beside each other, without a prefix."""
        parts = self._attendance, self.client_time, self._clock, self._evaluations, self._guard, self._totals
        return parts if self._early_stop is None else (*parts, self._early_stop)
