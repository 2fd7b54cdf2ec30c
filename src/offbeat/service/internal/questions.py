"""The questions of a front to the leader.

A token is the SHA-256 of a client's bearer token: the leader checks it in each question.
"""

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from offbeat_core.messages import (
    MOST_RUNS,
    Beat,
    EvaluationReceipt,
    EvaluationResult,
    Hex32,
    Number,
    Request,
    RunName,
    WaitSeconds,
    Work,
)
from pydantic import BaseModel, Field

from offbeat.service.internal.answers import (
    CheckInAnswer,
    Done,
    DownloadPermission,
    Forwarded,
    HandInAnswer,
    Headers,
    OfferAnswer,
    UploadPermission,
    WithBody,
)
from offbeat.service.updates.update_header import Header

INTERNAL_PROTOCOL = 1
"""The version of these messages; front and leader must have the same."""

LARGEST_INLINE = 2**16
"""Bytes of the largest update that travels in its question."""

LARGEST_FRONT_WEIGHT = 2**26
"""Bytes of a front's questions that wait for their answers, by ``weight``; the front refuses what exceeds it."""

FrontId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
BlobName = Annotated[str, Field(pattern=r"^[0-9]{1,19}-[0-9]{1,19}-[0-9a-f]{16}$")]
_Text = Annotated[str, Field(max_length=1024)]

A = TypeVar("A", bound=BaseModel)


class Question(Request, Generic[A]):
    """A question; its answer is of the class ``answer``.

    ``least_weight`` is about how many bytes it takes at the leader until it is answered, beside its body. ``run`` is
    that which the question is about, on a server of several runs.
    """

    answer: ClassVar[type[BaseModel]]
    least_weight: ClassVar[int] = 2**12
    run: RunName | None = None


class WaitingQuestion(Question[A]):
    """A question whose answer may take ``wait_seconds``; the front may stop waiting."""

    wait_seconds: WaitSeconds = 0.0


class Hello(Request):
    """The first message of a front, whose id is new at each of its starts."""

    kind: Literal["hello"] = "hello"
    protocol: int
    front: FrontId


class StopWaiting(Request):
    """The end of a check-in, by its id: nobody waits for the answer."""

    kind: Literal["stop_waiting"] = "stop_waiting"
    question: Number


class CheckIn(WaitingQuestion[CheckInAnswer]):
    """A client's request for work.

    Without work it is answered after ``wait_seconds``. ``protocol`` and ``supports`` are the client's headers
    ``Offbeat-Protocol`` and ``Offbeat-Supports``.
    """

    answer = CheckInAnswer
    kind: Literal["check_in"] = "check_in"
    token: Hex32
    protocol: _Text | None = None
    supports: _Text | None = None


class FindWork(WaitingQuestion[Work]):
    """A site's question in which run there is work; see ``WorkRequest``."""

    answer = Work
    kind: Literal["find_work"] = "find_work"
    token: Hex32
    without: Annotated[tuple[RunName, ...], Field(max_length=MOST_RUNS)] = ()
    protocol: _Text | None = None
    supports: _Text | None = None


class Offer(Question[OfferAnswer]):
    """The question whether an update would count."""

    answer = OfferAnswer
    kind: Literal["offer"] = "offer"
    token: Hex32
    visit: Number


class MayUpload(Question[UploadPermission]):
    """The question how to check the body of an update, before it arrives."""

    answer = UploadPermission
    kind: Literal["may_upload"] = "may_upload"
    token: Hex32
    visit: Number
    header: Annotated[Header, Field(union_mode="left_to_right")]


class HandIn(Question[HandInAnswer], WithBody):
    """A complete update, which the front has checked against its header.

    The body of a small one is in ``body``; a large one is durable in the store under the name ``blob``, which begins
    with client and visit. ``norm`` is its
    Euclidean norm, None if that must not be known. With ``check_in`` the client asks for its next visit.
    """

    answer = HandInAnswer
    largest_body = LARGEST_INLINE
    kind: Literal["hand_in"] = "hand_in"
    token: Hex32
    visit: Number
    header: Annotated[Header, Field(union_mode="left_to_right")]
    norm: Annotated[float, Field(ge=0)] | None
    blob: BlobName | None = None
    check_in: bool = False
    protocol: _Text | None = None
    supports: _Text | None = None

    def check_body(self) -> None:
        """Check that the body is here, or in the store; ``ValueError``."""
        expected = self.header.bytes if self.blob is None else 0
        if len(self.body) != expected:
            raise ValueError(f"an update of {self.header.bytes} bytes came with {len(self.body)} bytes")


class RenewLease(Question[Beat]):
    """A heartbeat of a client at work."""

    answer = Beat
    kind: Literal["renew_lease"] = "renew_lease"
    token: Hex32
    visit: Number


class GiveUp(Question[Done]):
    """A client's message that it gives up its visit."""

    answer = Done
    kind: Literal["give_up"] = "give_up"
    token: Hex32
    visit: Number


class Download(Question[DownloadPermission]):
    """The question whether a client, or an operator, may download a version.

    None stands for the newest version. With ``is_elsewhere`` the front does not have the leader's files: the version
    must be in the store of blobs. ``known`` is the client's header ``If-None-Match``.
    """

    answer = DownloadPermission
    kind: Literal["download"] = "download"
    token: Hex32
    version: Number | None = None
    by_operator: bool = False
    is_elsewhere: bool = False
    known: _Text | None = None


class HandInEvaluation(Question[EvaluationReceipt]):
    """A client's evaluation of a version."""

    answer = EvaluationReceipt
    kind: Literal["hand_in_evaluation"] = "hand_in_evaluation"
    token: Hex32
    version: Number
    result: EvaluationResult


class Forward(Question[Forwarded], WithBody):
    """A request for the leader's own application; ``peer`` is the client's address."""

    answer = Forwarded
    largest_body = 2**20
    least_weight = Forwarded.largest_body
    kind: Literal["forward"] = "forward"
    method: Annotated[str, Field(pattern=r"^[A-Z]{1,16}$")]
    path: Annotated[str, Field(max_length=2**13)]
    query: Annotated[str, Field(max_length=2**13)] = ""
    headers: Annotated[Headers, Field(repr=False)]  # one of them is the token itself
    peer: Annotated[str, Field(max_length=256)]


AnyQuestion = Annotated[
    Hello
    | StopWaiting
    | CheckIn
    | FindWork
    | Offer
    | MayUpload
    | HandIn
    | RenewLease
    | GiveUp
    | Download
    | HandInEvaluation
    | Forward,
    Field(discriminator="kind"),
]


def weight(question: Question[Any]) -> int:
    """Return about how many bytes a question takes at the leader until it is answered."""
    return question.least_weight + (len(question.body) if isinstance(question, WithBody) else 0)


def supported(supports: str | None) -> set[str]:
    """Return the names in a client's header ``Offbeat-Supports``; None: no header."""
    return {name.strip() for name in (supports or "").split(",")}
