"""The state of a visit, and of all open visits in a checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat_core.local_plan import Payload
from torch import Tensor

from offbeat.algorithms.components import LocalPlan
from offbeat.coordinator import Assignment, Coordinator
from offbeat.simulation.events import Kind
from offbeat.simulation.training_queue import PromisedUpload, TrainingQueue, bytes_tensor, tensor_bytes
from offbeat.training.trainers.backend import Job


@dataclass(slots=True, eq=False)
class SimulatedVisit:
    """A client's work on one assignment: download, local steps, upload."""

    assignment: Assignment
    assigned_seconds: float
    plan: LocalPlan  # the assignment's, or its first steps if the server asked for a partial update
    upload: PromisedUpload | None = None  # None: it will be lost
    start: Tensor | None = None  # the starting model, where it may be needed again
    offset: Tensor | None = None  # added to its local gradients
    steps_began: float = math.inf  # virtual seconds; infinity if the download breaks off
    upload_began: float = math.inf  # virtual seconds
    scale: float = 1.0  # the factor of a masked update, once its upload has begun
    sent: int = 0  # bytes of an upload that breaks off
    next_seconds: float = math.inf  # its next event; any other event of it in the queue is void
    next_kind: int = Kind.LOSS

    @property
    def may_be_cut_short(self) -> bool:
        """True if its local steps are not over and it was not cut short before."""
        return self.steps_began < self.upload_began == math.inf and self.plan is self.assignment.plan


def visits_state(visits: Mapping[int, SimulatedVisit]) -> dict[str, Any]:
    """Return the visits as a flat dict of tensors and plain values.

    A trained visit is saved with its upload. An untrained visit is saved with its starting model, which many visits
    share: training it later gives the same result.
    """
    tensors: dict[str, Tensor] = {}
    rows: list[list[Any]] = []
    for client, visit in visits.items():
        version, upload = visit.assignment.version, visit.upload
        has = [upload is not None, visit.start is not None]
        times = [visit.assigned_seconds, visit.steps_began, visit.upload_began, visit.next_seconds]
        loss = None if upload is None else upload.loss
        rows.append([client, visit.plan.steps, visit.sent, visit.next_kind, loss, *times, *has])
        if visit.offset is not None:
            tensors[f"offset.{client}"] = visit.offset
        if visit.start is not None:
            tensors[f"start.{version}"] = visit.start
        if upload is not None and upload.vector is not None:
            tensors[f"upload.{client}"] = upload.vector
            if upload.memory is not None and upload.memory.vector is not None:
                tensors[f"memory.{client}"] = upload.memory.vector
            if upload.memory is not None and upload.memory.state is not None:
                tensors[f"state.{client}"] = bytes_tensor(upload.memory.state)
        elif upload is not None and upload.job is not None:
            tensors[f"start.{version}"] = upload.job.start
    scales = [[client, visit.scale] for client, visit in visits.items() if visit.scale != 1.0]
    uploads = {client: visit.upload for client, visit in visits.items() if visit.upload is not None}
    examples = [[client, upload.examples] for client, upload in uploads.items() if upload.examples]
    more = {"scales": scales, "examples": examples}
    return {
        **tensors,
        "rows": rows,
        **{key: value for key, value in more.items() if value},
    }


def visits_from_state(
    state: Mapping[str, Any], coordinator: Coordinator, queue: TrainingQueue, payload: Payload
) -> dict[int, SimulatedVisit]:
    """Return the visits that ``visits_state`` saved.

    ``queue`` takes the jobs that are still to be trained; their results are a ``payload``. The coordinator and the
    clients' memories in the queue must be in the state that they were saved in.
    """
    visits: dict[int, SimulatedVisit] = {}
    scales, examples = dict(state.get("scales", ())), dict(state.get("examples", ()))
    for client, steps, sent, next_kind, loss, assigned, steps_began, upload_began, next_seconds, *has in state["rows"]:
        assignment = coordinator.visits.assignment(client)
        assert assignment is not None
        full_plan = assignment.plan
        plan = full_plan if steps == full_plan.steps else full_plan.prefix(steps)
        offset: Tensor | None = state.get(f"offset.{client}")
        start: Tensor | None = state.get(f"start.{assignment.version}")
        has_upload, has_start = has
        upload: PromisedUpload | None = None
        if f"upload.{client}" in state:
            upload = queue.kept(
                state[f"upload.{client}"],
                state.get(f"memory.{client}"),
                loss,
                state=None if (kept := state.get(f"state.{client}")) is None else tensor_bytes(kept),
                examples=examples.get(client),
            )
        elif has_upload:
            assert start is not None
            job = Job(client, assignment.visit, assignment.version, start, plan, payload, offset)
            upload = queue.promise(job)
        times = steps_began, upload_began, scales.get(client, 1.0), sent, next_seconds
        visits[client] = SimulatedVisit(
            assignment, assigned, plan, upload, start if has_start else None, offset, *times, next_kind
        )
    return visits
