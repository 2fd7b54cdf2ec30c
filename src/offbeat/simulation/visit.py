"""The visits that are going on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from offbeat.algorithms.components import LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.coordinator.calls import Assignment
from offbeat.simulation.events import Kind
from offbeat.simulation.work import Memory, Work, WorkQueue
from offbeat.training.trainers.trainer import Job


@dataclass(slots=True, eq=False)
class Visit:
    """A client that is at work, or on its way back with the result."""

    assignment: Assignment
    assigned_seconds: float
    plan: LocalPlan  # what it does: the assignment's, cut short if it was asked for what it has
    work: Work | None = None  # None: it will be lost
    start: Tensor | None = None  # the starting model, where somebody may ask for it
    offset: Tensor | None = None  # added to its local gradients
    steps_began: float = math.inf  # virtual seconds; infinity if the download breaks off
    upload_began: float = math.inf  # virtual seconds
    sent: int = 0  # bytes of the upload, once it is known that it breaks off
    next_seconds: float = math.inf  # when the next thing happens to it; what else is in the queue for it is void
    next_kind: int = Kind.LOSS

    @property
    def may_be_cut_short(self) -> bool:
        """Whether it is at its local steps, or will be, and has not been cut short."""
        return self.steps_began < self.upload_began == math.inf and self.plan is self.assignment.plan


def visits_state(visits: Mapping[int, Visit]) -> dict[str, Any]:
    """Return the visits as a flat dict of tensors and plain values.

    Of a visit whose training is done the upload is saved; of one whose training is not, its starting model: training
    it later gives the same, and a starting model is shared by many.
    """
    state: dict[str, Tensor] = {}
    rows: list[list[Any]] = []
    for client, visit in visits.items():
        version, work = visit.assignment.version, visit.work
        has = [work is not None, visit.start is not None]
        times = [visit.assigned_seconds, visit.steps_began, visit.upload_began, visit.next_seconds]
        loss = None if work is None else work.loss
        rows.append([client, visit.plan.steps, visit.sent, visit.next_kind, loss, *times, *has])
        if visit.offset is not None:
            state[f"offset.{client}"] = visit.offset
        if visit.start is not None:
            state[f"start.{version}"] = visit.start
        if work is not None and work.vector is not None:
            state[f"upload.{client}"] = work.vector
            if work.memory is not None and work.memory.vector is not None:
                state[f"memory.{client}"] = work.memory.vector
        elif work is not None and work.job is not None:
            state[f"start.{version}"] = work.job.start
    return {**_apart(state), "rows": rows}


def _apart(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a copy of each that is there twice, since no two in a checkpoint may share memory.

    So it is with a client's first difference, which is all that it remembers, and a version that equals the one before.
    """
    seen: set[int] = set()
    apart: dict[str, Tensor] = {}
    for key, tensor in state.items():
        place = tensor.untyped_storage().data_ptr()
        apart[key] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return apart


def visits_from_state(
    state: Mapping[str, Any], coordinator: Coordinator, queue: WorkQueue, memories: Mapping[int, Memory]
) -> dict[int, Visit]:
    """Return the visits that ``visits_state`` saved.

    Args:
        state: What it returned.
        coordinator: In the state that it was in then.
        queue: Takes the work that is still to be done.
        memories: What each client remembers of its last counted visit.
    """
    visits: dict[int, Visit] = {}
    for client, steps, sent, next_kind, loss, assigned, steps_began, upload_began, next_seconds, *has in state["rows"]:
        assignment = coordinator.assignment(client)
        assert assignment is not None
        whole = assignment.plan
        plan = whole if steps == whole.steps else whole.prefix(steps)
        offset: Tensor | None = state.get(f"offset.{client}")
        start: Tensor | None = state.get(f"start.{assignment.version}")
        has_work, has_start = has
        work: Work | None = None
        if f"upload.{client}" in state:
            work = queue.kept(state[f"upload.{client}"], state.get(f"memory.{client}"), loss)
        elif has_work:
            assert start is not None
            job = Job(client, assignment.visit, assignment.version, start, plan, coordinator.algorithm.payload, offset)
            work = queue.promise(job, memories.get(client))
        times = steps_began, upload_began, sent, next_seconds
        visits[client] = Visit(
            assignment, assigned, plan, work, start if has_start else None, offset, *times, next_kind
        )
    return visits
