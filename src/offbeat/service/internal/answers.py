"""The leader's answers to a front.

They hold the message for the client, and what the front must know.
"""

from typing import Annotated, ClassVar, Literal, Self

from offbeat_core.messages import Answer, CheckedIn, CompressionMessage, Hex32, Number, Received, Request, UploadState
from pydantic import ConfigDict, Field, field_validator

from offbeat.service.refusal import KINDS, Refusal

RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
_Name = Annotated[str, Field(max_length=256)]
_Value = Annotated[str, Field(max_length=2**13)]
Headers = Annotated[tuple[tuple[_Name, _Value], ...], Field(max_length=100)]
"""Names and values of HTTP headers."""


class WithBody(Request):
    """A message with bytes, which travel beside its JSON."""

    model_config = ConfigDict(frozen=False)  # the bytes are attached once the JSON has been read

    largest_body: ClassVar[int]
    body: Annotated[bytes, Field(exclude=True, repr=False)] = b""

    def check_body(self) -> None:
        """Raise ``ValueError`` if the body does not belong to the message."""


class Done(Answer):
    """The answer without content."""


class BodyCheck(Request):
    """The check of an update's body: ``length`` entries, compressed or not.

    ``values`` says whether all must be finite, and their norm goes to the leader; otherwise only the form counts.
    """

    length: Number
    compression: CompressionMessage | None
    is_masked: bool
    values: bool


class CheckInAnswer(Request):
    """The answer to a check-in, and the check of the update that it asks for."""

    checked_in: CheckedIn
    check: BodyCheck | None


class OfferAnswer(Request):
    """The state of an update of a client; its offset is the front's to say."""

    client: Number
    state: UploadState


class UploadPermission(Request):
    """The check that a client's body needs.

    If the visit is over, the update's answer instead.
    """

    client: Number
    check: BodyCheck | None = None
    received: Received | None = None


class HandInAnswer(Request):
    """The answer to an update.

    With it comes the check of the next update, if the client has got a visit.
    """

    received: Received
    check: BodyCheck | None


class DownloadPermission(Request):
    """A version, and the SHA-256 of its file; ``name`` is for people."""

    version: Number
    sha256: Hex32
    name: Annotated[str, Field(max_length=256)]


class Forwarded(WithBody):
    """The answer of the leader's application."""

    largest_body = 2**21
    status: Annotated[int, Field(ge=200, le=599)]
    headers: Headers


class Refused(Request):
    """A refusal; ``kind`` is one of ``KINDS``."""

    kind: Annotated[str, Field(max_length=64)]
    detail: Annotated[str, Field(max_length=2**13)]
    headers: Annotated[dict[_Name, _Value], Field(max_length=100)]

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind not in KINDS:
            raise ValueError("not a kind of refusal")
        return kind

    @classmethod
    def of(cls, refusal: Refusal) -> Self:
        """Return the message for a refusal."""
        return cls(kind=refusal.kind, detail=refusal.detail[: 2**13], headers=refusal.headers)

    def refusal(self) -> Refusal:
        """Return the refusal."""
        return Refusal(self.kind, self.detail, self.headers)


class Welcome(Request):
    """The leader's answer to a hello, with the run's id."""

    run: RunId


class Farewell(Request):
    """The last message on a connection: why there are no answers."""

    kind: Literal["follows", "stopping", "refused"]
    reason: Annotated[str, Field(max_length=1024)]
