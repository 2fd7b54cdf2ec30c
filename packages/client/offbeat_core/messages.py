"""The JSON bodies between server and client, as in ``docs/protocol.md``."""

from functools import lru_cache
from typing import Annotated

from offbeat_core.digests import DigestKind
from offbeat_core.local_plan import Compression, LocalPlan, Optimizer, Payload
from offbeat_core.name_check import Name
from offbeat_core.number_checks import LARGEST_COUNT, LARGEST_FLOAT32
from pydantic import BaseModel, ConfigDict, Field

PROTOCOL = "1.0"
"""The protocol's version, which is the same at server and client."""

Examples = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=LARGEST_FLOAT32)]
WaitSeconds = Annotated[float, Field(ge=0, le=60)]
Number = Annotated[int, Field(ge=0, lt=1 << 63)]
Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
AuditHead = Annotated[str, Field(pattern=r"^[0-9]{1,18}:[0-9a-f]{64}$")]
"""The number of entries of the server's audit log, and its last digest."""

RunName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""The name of a run on a server of several runs, in its URLs and its folder."""

MOST_RUNS = 1000
"""The largest number of runs on one server."""

MetricName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
LARGEST_PROBE = 2**18
"""Bytes that a client uploads, at most, to measure its upload speed."""

MOST_METRICS = 32
"""The largest number of metrics that a client measures."""


class Request(BaseModel):
    """A JSON object for the server, which refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Answer(BaseModel):
    """A JSON object for a client, which ignores unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", strict=True, allow_inf_nan=False, json_schema_serialization_defaults_required=True
    )


class Enrolment(Request):
    """A client's request to take part."""

    name: Name = ""
    token: Annotated[str, Field(max_length=100)] | None = None
    examples: Examples | None = None


class Declaration(Request):
    """A client's number of examples."""

    examples: Examples


class Speed(Request):
    """A client's own measurement of its speed."""

    step_seconds: Seconds
    upload_seconds: Seconds


class CheckInRequest(Request):
    """An idle client's request for work."""

    wait_seconds: WaitSeconds = 0.0


class WorkRequest(Request):
    """A site's question where it has work, to a server of several runs.

    ``without`` are runs for which it cannot work.
    """

    wait_seconds: WaitSeconds = 0.0
    without: Annotated[tuple[RunName, ...], Field(max_length=MOST_RUNS)] = ()


class EvaluationResult(Request):
    """A client's measurement of a version on its held-out examples."""

    model_sha256: Hex32
    examples: Examples
    metrics: Annotated[
        dict[MetricName, Annotated[float, Field(ge=-LARGEST_FLOAT32, le=LARGEST_FLOAT32)]],
        Field(min_length=1, max_length=MOST_METRICS),
    ]


class NewToken(Answer):
    """A new token in place of the client's present one."""

    token: str
    expires_seconds: float | None


class Enrolled(NewToken):
    """The client's number and token.

    With ``has_runs`` the server has several runs: the client asks for work at ``/v1/work``.
    """

    client: int
    has_runs: bool = False


class Work(Answer):
    """The run with work for a site, and the site's client number there; or null.

    The client checks in at ``/runs/RUN/v1/checkin`` then. ``finished`` says that all runs of the site are over.
    """

    run: RunName | None
    client: int | None
    finished: bool


class CompressionMessage(Answer):
    """The compressor of a plan."""

    name: str
    parameters: dict[str, bool | int | float]


class PlanMessage(Answer):
    """A plan; a client refuses unknown keys, which it could not carry out."""

    model_config = ConfigDict(extra="forbid")

    steps: int
    batch_size: int
    lr: float | tuple[float, ...]
    momentum: float = 0.0
    weight_decay: float = 0.0
    mu: float = 0.0
    clip_norm: float | None = None
    compression: CompressionMessage | None = None
    error_feedback: bool = False
    optimizer: Optimizer = "sgd"
    by_epochs: bool = False

    @classmethod
    @lru_cache
    def of(cls, plan: LocalPlan) -> "PlanMessage":
        """Return the message for a plan, one for all visits of it, which must not change."""
        compression = plan.compression and CompressionMessage(
            name=plan.compression.name, parameters=dict(plan.compression.parameters)
        )
        values = {name: getattr(plan, name) for name in cls.model_fields if name != "compression"}
        return cls(**values, compression=compression)

    def plan(self) -> LocalPlan:
        """Return the plan; ``ValueError`` if a value is out of range."""
        compression = self.compression and Compression(
            self.compression.name, tuple(self.compression.parameters.items())
        )
        values = {name: getattr(self, name) for name in PlanMessage.model_fields if name != "compression"}
        return LocalPlan(**values, compression=compression)


class PrivacyMessage(Answer):
    """The digest of the run's terms."""

    terms: Hex32


class VisitMessage(Answer):
    """A visit; ``privacy`` is null unless its update is to be a share.

    ``digest`` is the kind that the server prefers for the update.
    """

    number: int
    version: int
    model_sha256: Hex32
    since: int | None
    payload: Payload
    length: int
    seed: int
    plan: PlanMessage
    lease_seconds: float | None
    urgent: bool
    corrects_gradients: bool = False
    needs_loss: bool = False
    privacy: PrivacyMessage | None = None
    digest: DigestKind = "sha256"


class Probe(Answer):
    """The measurements that a client is asked for; null for none.

    They are a visit of one step, and an upload.
    """

    probe: VisitMessage | None
    upload_bytes: Annotated[int, Field(ge=0, le=LARGEST_PROBE)] = 0


class ProbeBody(Answer):
    """The number of bytes of a probe that arrived."""

    bytes: int


class EvaluationMessage(Answer):
    """A version, of so many parameters, to evaluate before the next check-in."""

    version: Number
    model_sha256: Hex32
    length: int


class EvaluationReceipt(Answer):
    """The receipt of an evaluation: whether it counts."""

    counted: bool
    audit_head: AuditHead | None = None


class CheckedIn(Answer):
    """Work, or when to check in again."""

    visit: VisitMessage | None
    retry_after_seconds: float | None
    finished: bool
    evaluation: EvaluationMessage | None = None


class ReceiptMessage(Answer):
    """The receipt of an update: whether it counted.

    All values are null if the server no longer knows.
    """

    counted: bool | None
    staleness: int | None
    new_version: bool | None


class Received(Answer):
    """The answer to a complete update.

    ``next`` is the answer to a check-in, if the client asked for one.
    """

    receipt: ReceiptMessage
    next: CheckedIn | None = None
    audit_head: AuditHead | None = None


class Partly(Answer):
    """The answer to a part of an update: how many bytes the server has."""

    offset: int


class EpochMessage(Answer):
    """The helper's signed HPKE key; see ``EpochKey``."""

    number: Annotated[int, Field(ge=0, lt=1 << 32)]
    public_key: Hex32
    signature: Hex64


class HeadMessage(Answer):
    """The newest signed head of the helper's chain; see ``Head``."""

    number: Number
    digest: Hex32
    signature: Hex64


class ShareMessage(Answer):
    """The facts that a share is made of.

    ``version`` is the open version t, ``scale`` the weight by staleness there. The helper signed ``epoch`` and
    ``head``.
    """

    version: Number
    scale: Annotated[float, Field(ge=0, le=LARGEST_FLOAT32)]
    epoch: EpochMessage
    head: HeadMessage


class UploadState(Answer):
    """The state of an update at the server.

    ``wanted`` says whether the update would count; ``offset`` is the number of bytes that the server has. ``share`` is
    null unless the update is wanted as a share.
    """

    wanted: bool
    offset: int
    receipt: ReceiptMessage | None
    share: ShareMessage | None = None
    audit_head: AuditHead | None = None


class Beat(Answer):
    """The answer to a heartbeat."""

    wanted: bool
    lease_seconds: float | None
    urgent: bool


class Problem(Answer):
    """The answer to a refused request (RFC 9457)."""

    title: str = ""
    status: int = 0
    kind: str = ""
    detail: str = ""
