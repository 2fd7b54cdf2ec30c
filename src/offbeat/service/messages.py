"""What goes over the line as JSON; ``docs/protocol.md`` says what it means."""

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from offbeat.algorithms.components import Algorithm, LocalPlan
from offbeat.algorithms.components.checks import LARGEST_COUNT, LARGEST_FLOAT32
from offbeat.coordinator.calls import Assignment, Unknown
from offbeat.coordinator.calls import Receipt as Answer


class Message(BaseModel):
    """A JSON object; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Examples = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=LARGEST_FLOAT32)]


class Enrolment(Message):
    """A client that wants to take part."""

    name: Annotated[str, Field(max_length=100)] = ""
    token: Annotated[str, Field(max_length=100)] | None = None
    examples: Examples | None = None


class Enrolled(Message):
    """What it is from then on."""

    client: int
    token: str
    expires_seconds: float | None


class Declaration(Message):
    """How many examples a client holds."""

    examples: Examples


class NewToken(Message):
    """Another token in place of the one that a client has."""

    token: str
    expires_seconds: float | None


class Speed(Message):
    """How fast a client is, by its own measure."""

    step_seconds: Seconds
    upload_seconds: Seconds


class CheckIn(Message):
    """A client that is there, and idle."""

    wait_seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


class Visit(Message):
    """A piece of work."""

    number: int
    version: int
    since: int | None
    payload: str
    length: int
    seed: int
    plan: dict[str, Any]
    lease_seconds: float | None
    urgent: bool
    corrects_gradients: bool
    needs_loss: bool


class Probe(Message):
    """What a client is to measure before its first visit: a visit of one step, and an upload; null: nothing."""

    probe: Visit | None
    upload_bytes: int


class ProbeBody(Message):
    """How many bytes of a probe came."""

    bytes: int


class CheckedIn(Message):
    """Work, or when to come back."""

    visit: Visit | None
    retry_after_seconds: float | None
    finished: bool


class Receipt(Message):
    """What became of an update; all null if that is not known any more."""

    counted: bool | None
    staleness: int | None
    new_version: bool | None


class Received(Message):
    """The answer to an update that is whole; ``next`` is as for a check-in, if that was asked for."""

    receipt: Receipt
    next: CheckedIn | None


class Partly(Message):
    """The answer to a part of one."""

    offset: int


class UploadState(Message):
    """Whether an update would count, and how much of it is there."""

    wanted: bool
    offset: int
    receipt: Receipt | None


class Beat(Message):
    """The answer to a heartbeat."""

    wanted: bool
    lease_seconds: float | None
    urgent: bool


class NewEnrolmentToken(Message):
    """What an enrolment token is to be good for; null: any number, for ever."""

    uses: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    expires_seconds: Annotated[float, Field(gt=0, le=1e10)] | None = None
    name: Annotated[str, Field(max_length=100)] = ""


class NewAdminToken(Message):
    """What an admin token is to be good for; null: for ever."""

    expires_seconds: Annotated[float, Field(gt=0, le=1e10)] | None = None
    name: Annotated[str, Field(max_length=100)] = ""


class MadeToken(Message):
    """An enrolment or admin token."""

    token: str


class ListedToken(Message):
    """An enrolment or admin token, without the token itself."""

    id: str
    kind: str
    name: str
    state: str
    uses: int | None
    expires_seconds: float | None


class Tokens(Message):
    """All enrolment and admin tokens."""

    tokens: list[ListedToken]


class Status(Message):
    """How far a run is."""

    algorithm: str
    version: int
    finished: bool
    enrolled: int
    clients: int
    waits_for: str | None
    waiting: int
    assigned: int
    counted: int
    unused: int
    lost: int
    mean_staleness: float
    max_staleness: int
    refused_steps: int
    run_seconds: float
    evaluated: dict[str, Any] | None


class Problem(Message):
    """A request that was not carried out."""

    title: str
    status: int
    kind: str
    detail: str


def plan_message(plan: LocalPlan) -> dict[str, Any]:
    """Return a plan as it travels."""
    values = asdict(plan)
    if plan.compression:
        values["compression"] = {"name": plan.compression.name, "parameters": dict(plan.compression.parameters)}
    return values


def visit_message(
    assignment: Assignment, algorithm: Algorithm, *, length: int, seed: int, lease_seconds: float | None
) -> Visit:
    """Return an assignment of this algorithm as it travels."""
    return Visit(
        number=assignment.visit,
        version=assignment.version,
        since=assignment.since,
        payload=algorithm.payload,
        length=length,
        seed=seed,
        plan=plan_message(assignment.plan),
        lease_seconds=lease_seconds,
        urgent=assignment.client in algorithm.urgent(),
        corrects_gradients=algorithm.corrects_gradients,
        needs_loss=algorithm.needs_loss,
    )


def receipt_message(answer: Answer | Unknown) -> Receipt:
    """Return a receipt as it travels."""
    if isinstance(answer, Unknown):
        return Receipt(counted=None, staleness=None, new_version=None)
    return Receipt(counted=answer.counted, staleness=answer.staleness, new_version=answer.new_version)
