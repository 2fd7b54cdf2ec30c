"""The stages of a visit: download, local steps, offer, upload, end."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offbeat_core.local_plan import Payload
from torch import Tensor

from offbeat.algorithms.components import Algorithm, Promise
from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator import Assignment, Coordinator
from offbeat.coordinator.sealed_sums import upload_scale
from offbeat.population.devices.client_devices import Devices
from offbeat.simulation.clock import at_tick
from offbeat.simulation.events import EventQueue, Kind
from offbeat.simulation.simulated_visit import SimulatedVisit, visits_from_state, visits_state
from offbeat.simulation.totals import Outcome, Totals, VisitEnded
from offbeat.simulation.training_queue import PromisedUpload, TrainingQueue
from offbeat.simulation.visit_costs import PlanCosts, Timing
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.trainer import Trainer

if TYPE_CHECKING:  # a simulation without masks needs no cryptography
    from offbeat.simulation.masked_updates import MaskedUpdates


@dataclass(frozen=True, slots=True)
class _Needs:
    """The algorithm's requirements on visits."""

    partial_updates: bool  # it may ask for one, and then the shorter visit is trained from its start
    cancels: bool  # it may stop a visit
    offers: bool  # clients ask before an upload whether their update is still wanted
    start: bool  # the starting model is kept

    @staticmethod
    def of(coordinator: Coordinator, masked: "MaskedUpdates | None") -> "_Needs":
        algorithm = coordinator.algorithm
        partial_updates = type(algorithm).urgent is not Algorithm.urgent
        # Where every update counts, however late it comes, an offer changes nothing, and its event is saved. With
        # periods every event is needed: one that is next to a tick is moved onto it.
        # The server scales masked updates as their uploads begin.
        offers = partial_updates or coordinator.late_updates.may_refuse or algorithm.period is not None or bool(masked)
        cancels = type(algorithm).cancelled is not Algorithm.cancelled
        return _Needs(partial_updates, cancels, offers, algorithm.needs_base or partial_updates)


class VisitStages:
    """The course of visits: the end of each stage, and the calls to the coordinator.

    A visit goes through ``begin``, ``offer``, ``arrive``; or ``lose`` if it breaks off. Each stage puts the next one
    into the queue. ``cut_short`` replaces the next stage with an earlier one. The replaced stage's event stays in the
    queue but is void: an event counts only if its time and kind are those of the visit's next stage.

    Downloads are added to ``totals`` here; ``on_end``, which is called with each visit that has ended, adds the rest.

    Attributes:
        visits: The open visits by client.
        training: The promises of their uploads.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        devices: Devices,
        trainer: Trainer,
        queue: EventQueue,
        costs: PlanCosts,
        totals: Totals,
        *,
        seed: int,
        masked: "MaskedUpdates | None" = None,
        on_end: Callable[[VisitEnded], None],
    ) -> None:
        self.visits: dict[int, SimulatedVisit] = {}
        self.training = TrainingQueue(trainer, coordinator.algorithm.model.numel(), seed)
        self._coordinator = coordinator
        self._needs = _Needs.of(coordinator, masked)
        self._masked = masked
        # The difference of a masked update is made of whole numbers, after its training.
        self._payload: Payload = coordinator.algorithm.payload if masked is None else "delta"
        self._devices = devices
        self._timing = Timing(devices)
        self._is_lossy = (devices.loss_probability > 0).tobytes()
        self._trainer = trainer
        self._queue = queue
        self._costs = costs
        self._totals = totals
        self._seed = seed
        self._on_end = on_end

    def begin(self, now: float, assignments: list[Assignment]) -> None:
        """Begin visits: clients download the current version and take their steps.

        Reading the model may train the updates that it contains.
        """
        algorithm = self._coordinator.algorithm
        model, down = algorithm.model, algorithm.down() if algorithm.corrects_gradients else None
        for assignment in assignments:
            self._begin(now, assignment, model, down)

    def _begin(self, now: float, assignment: Assignment, model: Tensor, down: Tensor | None) -> None:
        client, plan = assignment.client, assignment.plan
        visit = SimulatedVisit(assignment, now, plan, start=model if self._needs.start else None)
        if down is not None:
            memory = self.training.memory(client)
            visit.offset = down.clone() if memory is None else down - memory
        self.visits[client] = visit
        self._totals.bytes_down += self._costs.down_bytes
        seconds, left = self._timing.download(client, now, self._costs.down_bytes)
        if left:
            self._expect(visit, now, seconds, Kind.LOSS)
            return
        visit.steps_began = seconds
        seconds, left = self._timing.compute(client, seconds, plan.steps)
        if left or self._is_lost(assignment):
            self._expect(visit, now, seconds, Kind.LOSS)
            return
        self._train(visit, model)
        if self._needs.offers or seconds == math.inf:
            self._expect(visit, now, seconds, Kind.OFFER)
        else:
            self._begin_upload(visit, seconds)

    def offer(self, now: float, client: int) -> None:
        """Begin a trained client's upload, or end its visit if the update is unwanted."""
        visit = self._visit_at(now, client, Kind.OFFER)
        if visit is not None and not self._end_if_unwanted(now, visit):
            self._begin_upload(visit, now)

    def arrive(self, now: float, client: int) -> None:
        """Hand a complete upload to the coordinator."""
        visit = self._visit_at(now, client, Kind.ARRIVAL)
        if visit is None:
            return
        algorithm, costs = self._coordinator.algorithm, self._costs
        size = costs.upload_bytes(visit.plan)
        assert visit.upload is not None
        if algorithm.needs_loss or self._trainer.keeps_states:
            visit.upload.resolve()
        sent = self._upload_of(visit, visit.upload)
        is_private = self._coordinator.participation is not None
        receipt = self._coordinator.receive(
            now,
            client,
            visit.assignment.visit,
            sent,
            examples=1 if is_private else visit.upload.examples or self._trainer.workload.examples(client),
            steps=visit.plan.steps,
            normaliser=costs.normaliser(visit.plan),
            base=visit.start if algorithm.needs_base else None,
            since=visit.assignment.since,
            step_seconds=None if is_private else self._timing.step_seconds[client],
            upload_seconds=None
            if is_private
            else (now - visit.upload_began) * (costs.model_bytes / size if size else 1),
            loss=visit.upload.loss if algorithm.needs_loss else None,
            share=b"" if self._masked else None,
        )
        if receipt.counted:
            self.training.note_counted(client, visit.upload)
            if self._masked is not None:
                self._masked.note_counted(client, sent)
        self._end(now, visit, "counted" if receipt.counted else "unused", receipt.staleness, size)

    def _upload_of(self, visit: SimulatedVisit, upload: PromisedUpload) -> Promise:
        if self._masked is None:
            return upload
        divisor = self._coordinator.algorithm.divisor(visit.plan)
        return self._masked.promise(upload, visit.assignment.client, visit.assignment.visit, divisor, visit.scale)

    def lose(self, now: float, client: int) -> None:
        """End a visit whose update is lost; the server learns of it when the lease ends."""
        visit = self._visit_at(now, client, Kind.LOSS)
        if visit is not None:
            self._end(now, visit, "lost", None, visit.sent)

    def follow_requests(self, now: float) -> None:
        """Carry out the algorithm's requests for partial updates and for visits to stop."""
        coordinator = self._coordinator
        if self._needs.partial_updates:
            for assignment in coordinator.visits.assignments(coordinator.algorithm.urgent()):
                self.cut_short(now, assignment)
        if self._needs.cancels:
            for assignment in coordinator.visits.assignments(coordinator.algorithm.cancelled()):
                visit = self.visits.get(assignment.client)
                if visit is not None and visit.upload is not None and visit.upload_began == math.inf:
                    self._end_if_unwanted(now, visit)

    def cut_short(self, now: float, assignment: Assignment) -> None:
        """Let a client upload after the local step that it is taking, at least its first."""
        client = assignment.client
        visit = self.visits.get(client)
        if visit is None or not visit.may_be_cut_short or self._is_lost(assignment):
            return
        began, full_plan = visit.steps_began, assignment.plan
        steps = 1 + bisect_left(
            range(1, full_plan.steps), now, key=lambda steps: self._timing.compute(client, began, steps)[0]
        )
        seconds, left = self._timing.compute(client, began, steps)
        if steps == full_plan.steps or left:
            return
        assert visit.start is not None
        self._cancel_upload(visit)
        visit.plan = full_plan.prefix(steps)
        self._train(visit, visit.start)
        self._expect(visit, now, seconds, Kind.OFFER)

    def _train(self, visit: SimulatedVisit, start: Tensor) -> None:
        client, number, version, *_ = visit.assignment
        visit.upload = self.training.promise(
            Job(client, number, version, start, visit.plan, self._payload, visit.offset)
        )

    def _begin_upload(self, visit: SimulatedVisit, began: float) -> None:
        visit.upload_began = began
        if self._masked is not None:
            client, _, version, *_ = visit.assignment
            visit.scale = upload_scale(self._coordinator.algorithm, client, version, visit.plan)
        size = self._costs.upload_bytes(visit.plan)
        seconds, left = self._timing.upload(visit.assignment.client, began, size)
        if left:
            self._cancel_upload(visit)
            visit.sent = size - math.ceil(left)
        self._expect(visit, began, seconds, Kind.LOSS if left else Kind.ARRIVAL)

    def _expect(self, visit: SimulatedVisit, now: float, seconds: float, kind: int) -> None:
        """Put the visit's next event into the queue, unless the seconds are infinite."""
        period = self._coordinator.algorithm.period
        if period is not None and seconds < math.inf:
            seconds = at_tick(seconds, period, now)
        visit.next_seconds, visit.next_kind = seconds, kind
        if seconds < math.inf:
            self._queue.put(seconds, kind, visit.assignment.client)

    def _visit_at(self, now: float, client: int, kind: int) -> SimulatedVisit | None:
        """Return the client's visit; None if this event was replaced by another."""
        visit = self.visits.get(client)
        return visit if visit is not None and visit.next_seconds == now and visit.next_kind == kind else None

    def _is_lost(self, assignment: Assignment) -> bool:
        client, number, *_ = assignment
        return self._is_lossy[client] > 0 and self._devices.visit_is_lost(self._seed, client, number)

    def _end_if_unwanted(self, now: float, visit: SimulatedVisit) -> bool:
        """Offer the update to the server; end the visit if the update is unwanted.

        Returns whether the visit ended.
        """
        receipt = self._coordinator.offer(now, visit.assignment.client, visit.assignment.visit)
        if receipt is not None:
            self._end(now, visit, "unused", receipt.staleness)
        return receipt is not None

    def _cancel_upload(self, visit: SimulatedVisit) -> None:
        if visit.upload is not None:
            self.training.cancel(visit.upload)
            visit.upload = None

    def _end(
        self, now: float, visit: SimulatedVisit, outcome: Outcome, staleness: int | None, bytes_up: int = 0
    ) -> None:
        client, number, version, *_ = visit.assignment
        del self.visits[client]
        if outcome == "unused":
            self._cancel_upload(visit)
        began, bytes_down = visit.assigned_seconds, self._costs.down_bytes
        self._on_end(VisitEnded(client, number, version, staleness, began, now, bytes_down, bytes_up, outcome))

    def state_dict(self) -> dict[str, Any]:
        """Return the clients' memories and the open visits; for the memories it trains."""
        masked = {} if self._masked is None else prefixed("masked", self._masked.state_dict())
        return {**self.training.state_dict(), **masked, **prefixed("visits", visits_state(self.visits))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, after the coordinator has."""
        self.training.load_state_dict(state)
        if self._masked is not None:
            self._masked.load_state_dict(under("masked", state))
        self.visits.clear()
        self.visits |= visits_from_state(under("visits", state), self._coordinator, self.training, self._payload)
