"""Batches: the content of a frame.

It is JSON for the messages, and then the bodies of those that have one.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args

from offbeat_core.messages import Beat, EvaluationReceipt, Number, Request, Work
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from offbeat.service.internal.answers import (
    CheckInAnswer,
    Done,
    DownloadPermission,
    Farewell,
    Forwarded,
    HandInAnswer,
    OfferAnswer,
    Refused,
    UploadPermission,
    Welcome,
    WithBody,
)
from offbeat.service.internal.questions import AnyQuestion
from offbeat.service.refusal import Refusal

MOST_MESSAGES = 1024
"""Messages in a batch."""

_LARGEST_TEXT = 2**20  # bytes of one message's JSON


class ProtocolError(Exception):
    """The other end sent what it must not send."""


class Asked(Request):
    """A question with its id, and the size of its body."""

    id: Number
    body: Number
    content: AnyQuestion


class Told(Request):
    """A message of the leader, with the id of the question that it answers.

    It is in one of the other fields.
    """

    id: Number | None
    body: Number
    refused: Refused | None = None
    check_in: CheckInAnswer | None = None
    work: Work | None = None
    offer: OfferAnswer | None = None
    upload_permission: UploadPermission | None = None
    hand_in: HandInAnswer | None = None
    download_permission: DownloadPermission | None = None
    beat: Beat | None = None
    done: Done | None = None
    evaluation_receipt: EvaluationReceipt | None = None
    forwarded: Forwarded | None = None
    welcome: Welcome | None = None
    farewell: Farewell | None = None

    @property
    def content(self) -> BaseModel:
        """The message; ``ProtocolError`` if there is none, or more than one."""
        names = self.model_fields_set - {"id", "body"}
        content = getattr(self, names.pop()) if len(names) == 1 else None
        if content is None:
            raise ProtocolError("a message has no content, or two")
        return content


class _FrontBatch(Request):
    messages: Annotated[list[Asked], Field(max_length=MOST_MESSAGES)]


class _LeaderBatch(Request):
    epoch: Number
    messages: Annotated[list[Told], Field(max_length=MOST_MESSAGES)]


_Batch = TypeVar("_Batch", _FrontBatch, _LeaderBatch)
_NAMES: dict[Any, str] = {
    get_args(field.annotation)[0]: name for name, field in Told.model_fields.items() if name not in ("id", "body")
}

FRONT_OPENING = b'{"messages":['
"""The beginning of a front's batch; ``leader_opening`` returns that of a leader's."""


def leader_opening(epoch: int) -> bytes:
    """Return the beginning of a batch of the leader of an epoch."""
    return b'{"epoch":%d,"messages":[' % epoch


def asked(number: int, question: BaseModel) -> tuple[bytes, bytes]:
    """Return a question's part of a batch, and its body.

    Raises ``Refusal`` if they are too large.
    """
    return _encoded(b"%d" % number, "content", question)


def told(number: int | None, message: BaseModel) -> tuple[bytes, bytes]:
    """Return a message's part of a batch, and its body.

    ``number`` is the id of the question that it answers. Raises ``Refusal`` if they are too large.
    """
    return _encoded(b"null" if number is None else b"%d" % number, _NAMES[type(message)], message)


def _encoded(number: bytes, name: str, message: BaseModel) -> tuple[bytes, bytes]:
    body = b""
    if isinstance(message, WithBody):
        body = message.body
        if len(body) > message.largest_body:
            raise _too_large(message.largest_body)
    text = to_json(message)
    if len(text) > _LARGEST_TEXT:
        raise _too_large(_LARGEST_TEXT)
    return b'{"id":%b,"body":%d,"%b":%b}' % (number, len(body), name.encode(), text), body


def _too_large(most: int) -> Refusal:
    return Refusal("too-large", f"between the servers at most {most} bytes of this can be sent")


def read_asked(head: bytes, bodies: memoryview) -> list[Asked]:
    """Return the questions of a front's batch; ``ProtocolError``."""
    messages = _read(_FrontBatch, head).messages
    _attach(messages, bodies)
    return messages


def read_told(head: bytes, bodies: memoryview) -> tuple[int, list[Told]]:
    """Return the epoch and the messages of a leader's batch; ``ProtocolError``."""
    batch = _read(_LeaderBatch, head)
    _attach(batch.messages, bodies)
    return batch.epoch, batch.messages


def _read(kind: type[_Batch], head: bytes) -> _Batch:
    try:
        return kind.model_validate_json(head)
    except ValidationError as error:
        # Without the input, which may hold a token.
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProtocolError(f"{where}: {first['type']}"[:200]) from None


def _attach(messages: Sequence[Asked] | Sequence[Told], bodies: memoryview) -> None:
    begin = 0
    for message in messages:
        content, end = message.content, begin + message.body
        if isinstance(content, WithBody):
            if message.body > content.largest_body:
                raise ProtocolError(f"a body has {message.body} bytes")
            content.body = bytes(bodies[begin:end])
            try:
                content.check_body()
            except ValueError as error:
                raise ProtocolError(str(error)) from None
        elif message.body:
            raise ProtocolError("a message that has no body came with one")
        begin = end
    if begin != len(bodies):
        raise ProtocolError(f"the bodies have {len(bodies)} bytes, not {begin}")
