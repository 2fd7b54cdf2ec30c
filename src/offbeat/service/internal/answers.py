"""The leader's messages to a front: answers, and what it sends unasked.

Most answers are the messages for the client, of ``offbeat_core.messages``.
"""

from typing import Annotated, ClassVar, Literal, Self

from offbeat_core.messages import Answer, CompressionMessage, Hex32, Number, Received, Request
from pydantic import ConfigDict, Field, field_validator

from offbeat.service.refusal import KINDS, Refusal

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

    ``values`` says whether all must be finite, and their norm at most ``largest_norm``; otherwise only the form counts,
    and the norm is not for the leader.
    """

    length: Number
    compression: CompressionMessage | None
    is_masked: bool
    values: bool
    largest_norm: Annotated[float, Field(ge=0)] | None


class UploadPermission(Request):
    """The check that a body needs; or the update's answer, if its visit is over."""

    check: BodyCheck | None = None
    received: Received | None = None


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
    """The leader's answer to a hello.

    What the front knows of tokens and versions may be out of date.
    """


class Farewell(Request):
    """The last message on a connection: why there are no answers."""

    kind: Literal["follows", "stopping", "refused"]
    reason: Annotated[str, Field(max_length=1024)]


class TokensChanged(Request):
    """Tokens were revoked, replaced or made: forget what is known of them."""

    tokens: Annotated[tuple[Hex32, ...], Field(max_length=1000)]


class Published(Request):
    """A version of the model may be downloaded."""

    version: Number
    digest: Hex32
    size: Number


Push = TokensChanged | Published
"""A message that the leader sends unasked."""
