"""Batches: what is sent arrives, and nothing else is accepted."""

import base64
import json
import random
from typing import Any

import pytest
from offbeat_core.messages import (
    Beat,
    CheckedIn,
    EvaluationReceipt,
    EvaluationResult,
    PlanMessage,
    ReceiptMessage,
    Received,
    UploadState,
    VisitMessage,
    Work,
)
from offbeat_private.masks.envelope import RECORD_BYTES
from pydantic import BaseModel

from offbeat.service.internal.answers import (
    BodyCheck,
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
)
from offbeat.service.internal.batches import (
    FRONT_OPENING,
    MOST_MESSAGES,
    ProtocolError,
    asked,
    leader_opening,
    read_asked,
    read_told,
    told,
)
from offbeat.service.internal.questions import (
    CheckIn,
    Download,
    FindWork,
    Forward,
    GiveUp,
    HandIn,
    HandInEvaluation,
    Hello,
    MayUpload,
    Offer,
    RenewLease,
    StopWaiting,
)
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_header import ShareHeader, UpdateHeader

DIGEST = "0123456789abcdef" * 4
TOKEN = "f" * 64
BODY = bytes(range(256)) * 100
HEADER = UpdateHeader(
    version=3, bytes=len(BODY), sha256=DIGEST, model_sha256=DIGEST, examples=9, steps=4, normaliser=4.0, since=None
)
RECORD = random.Random(0).randbytes(RECORD_BYTES)
SHARE = ShareHeader.model_validate(
    {
        "version": 3,
        "bytes": len(BODY),
        "sha256": DIGEST,
        "salt": DIGEST,
        "share": base64.b64encode(RECORD).decode(),
    }
)

VISIT = VisitMessage(
    number=1,
    version=3,
    model_sha256=DIGEST,
    since=None,
    payload="delta",
    length=7000,
    seed=0,
    plan=PlanMessage(steps=2, batch_size=10, lr=(0.5, 0.25)),
    lease_seconds=60.0,
    urgent=False,
)
NEXT = CheckedIn(visit=VISIT, retry_after_seconds=None, finished=False)
RECEIVED = Received(receipt=ReceiptMessage(counted=True, staleness=0, new_version=False), next=NEXT)
CHECK = BodyCheck(length=9, compression=None, is_masked=False, values=True)

QUESTIONS: list[BaseModel] = [
    Hello(protocol=1, front="a" * 32),
    StopWaiting(question=7),
    CheckIn(token=TOKEN, wait_seconds=20.0, protocol="1.0", supports="evaluate, privacy"),
    FindWork(token=TOKEN, wait_seconds=20.0, without=("one", "two-3")),
    Offer(token=TOKEN, visit=2**63 - 1),
    RenewLease(token=TOKEN, visit=0, run="one"),
    MayUpload(token=TOKEN, visit=1, header=HEADER),
    HandIn(token=TOKEN, visit=1, header=HEADER, norm=0.5, body=BODY, check_in=True),
    HandIn(token=TOKEN, visit=1, header=HEADER, norm=0.5, blob=f"0-1-{16 * 'a'}"),
    RenewLease(token=TOKEN, visit=0),
    GiveUp(token=TOKEN, visit=0),
    Download(token=TOKEN, version=3, is_elsewhere=True, known=f'"{DIGEST}", W/"x"'),
    Download(token=TOKEN),
    HandInEvaluation(
        token=TOKEN, version=2, result=EvaluationResult(model_sha256=DIGEST, examples=5, metrics={"loss": 0.5})
    ),
    Forward(method="POST", path="/v1/é", query="a=b", headers=(("x", "\xe9\n"),), peer="::1", body=b"\0\xff"),
]
MESSAGES: list[BaseModel] = [
    Refused(kind="busy", detail="later", headers={"Retry-After": "5"}),
    CheckInAnswer(checked_in=NEXT, check=CHECK),
    CheckInAnswer(checked_in=CheckedIn(visit=None, retry_after_seconds=5.0, finished=False), check=None),
    OfferAnswer(client=7, state=UploadState(wanted=True, offset=3, receipt=None)),
    UploadPermission(client=7, check=CHECK, received=None),
    UploadPermission(client=7, received=RECEIVED),
    HandInAnswer(received=RECEIVED, check=CHECK),
    HandInAnswer(received=RECEIVED.model_copy(update={"next": None}), check=None),
    Work(run="one", client=3, finished=False),
    Work(run=None, client=None, finished=True),
    DownloadPermission(version=3, sha256=DIGEST, name="fitness-3.offbeat"),
    Beat(wanted=True, lease_seconds=None, urgent=True),
    Done(),
    EvaluationReceipt(counted=True),
    Forwarded(status=404, headers=(("Content-Type", "text/html"),), body=BODY),
    Welcome(run="b" * 16),
    Farewell(kind="follows", reason="another leads"),
]


def front_batch(*parts: tuple[bytes, bytes]) -> tuple[bytes, memoryview]:
    head = FRONT_OPENING + b",".join(part[0] for part in parts) + b"]}"
    return head, memoryview(b"".join(part[1] for part in parts))


def one(content: Any, *, number: Any = 1, body: Any = 0, **more: Any) -> bytes:
    return json.dumps({"messages": [{"id": number, "body": body, "content": content, **more}]}).encode()


def leads(**message: Any) -> bytes:
    return json.dumps({"epoch": 4, "messages": [{"id": 1, "body": 0, **message}]}).encode()


def plain(model: BaseModel) -> dict[str, Any]:
    return json.loads(model.model_dump_json())


def test_questions_arrive_as_they_were_sent() -> None:
    found = read_asked(*front_batch(*(asked(number, question) for number, question in enumerate(QUESTIONS))))
    assert [message.id for message in found] == list(range(len(QUESTIONS)))
    assert [message.content for message in found] == QUESTIONS
    assert [type(message.content) for message in found] == [type(question) for question in QUESTIONS]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_of_the_leader_arrive_as_they_were_sent(message: BaseModel) -> None:
    part, body = told(5, message)
    epoch, (found,) = read_told(leader_opening(3) + part + b"]}", memoryview(body))
    assert (epoch, found.id, found.content, type(found.content)) == (3, 5, message, type(message))


def test_bodies_go_to_their_questions_in_order() -> None:
    bodies = [b"first", b"", b"the third"]
    parts = [
        asked(number, Forward(method="GET", path="/", headers=(), peer="", body=body))
        for number, body in enumerate(bodies)
    ]
    found = [message.content for message in read_asked(*front_batch(*parts))]
    assert [content.body for content in found if isinstance(content, Forward)] == bodies


def test_a_share_is_base64_in_json_as_in_the_clients_header() -> None:
    masked = HandIn(token=TOKEN, visit=1, header=SHARE, norm=None, body=BODY)
    part, body = asked(1, masked)
    assert json.loads(part)["content"]["header"]["share"] == base64.b64encode(RECORD).decode()
    assert read_asked(*front_batch((part, body)))[0].content == masked


LEASE = plain(RenewLease(token=TOKEN, visit=1))
UPDATE = plain(HandIn(token=TOKEN, visit=1, header=HEADER, norm=0.5, body=BODY))
DOWNLOAD = plain(Download(token=TOKEN, version=3))
REQUEST = plain(Forward(method="GET", path="/", headers=(), peer=""))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\xff",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"messages":[]}' * 2,
        b'{"messages":[],"epoch":3}',
        one(LEASE | {"kind": "unknown"}),
        one({"visit": 1, "token": TOKEN}),
        one(LEASE | {"more": 1}),
        one(LEASE, more=1),
        one(LEASE, number=-1),
        one(LEASE, number=1.0),
        one(LEASE, number="1"),
        one(LEASE, number=None),
        one(LEASE, body=-1),
        one(LEASE, body=1),
        one(LEASE | {"token": "f" * 63}),
        one(LEASE | {"token": "F" * 64}),
        one(LEASE | {"visit": 2**63}),
        one(LEASE | {"visit": True}),
        one(DOWNLOAD | {"version": -1}),
        one(DOWNLOAD | {"known": "x" * 1025}),
        one(REQUEST | {"headers": [["x", "y"]] * 101}),
        one(REQUEST | {"method": "GET\r\nX"}),
        one(UPDATE | {"norm": -1.0}, body=len(BODY)),
        one(UPDATE | {"norm": "NaN"}, body=len(BODY)),
        one(UPDATE).replace(b"0.5", b"NaN"),
        one(UPDATE | {"header": UPDATE["header"] | {"share": "AAAA"}}, body=len(BODY)),
        json.dumps({"messages": [{"id": number, "body": 0, "content": LEASE} for number in range(1025)]}).encode(),
    ],
    ids=lambda head: head[:60].decode("latin-1"),
)
def test_what_is_not_a_batch_is_refused_in_one_short_line(head: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_asked(head, memoryview(b""))
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) <= 200
    assert TOKEN not in line


def test_a_batch_may_have_so_many_messages() -> None:
    batch = {"messages": [{"id": number, "body": 0, "content": LEASE} for number in range(MOST_MESSAGES)]}
    assert len(read_asked(json.dumps(batch).encode(), memoryview(b""))) == 1024


@pytest.mark.parametrize(
    ("content", "size", "bodies"),
    [
        (UPDATE, len(BODY), BODY[:-1]),
        (UPDATE, len(BODY), BODY + b"x"),
        (UPDATE, len(BODY) - 1, BODY[:-1]),
        (UPDATE, 0, b""),
        (UPDATE | {"body": "x" * len(BODY)}, 0, b""),
        (UPDATE | {"blob": "there"}, len(BODY), BODY),
        (UPDATE | {"header": UPDATE["header"] | {"bytes": 2**16 + 1}}, 2**16 + 1, bytes(2**16 + 1)),
        (LEASE, 0, b"x"),
        (LEASE, 1, b"x"),
        (REQUEST, 5, b"four"),
        (REQUEST, 2**62, b""),
        (REQUEST, 2**20 + 1, bytes(2**20 + 1)),
    ],
)
def test_bodies_must_fit_their_messages(content: Any, size: int, bodies: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_asked(one(content, body=size), memoryview(bodies))


@pytest.mark.parametrize(
    "head",
    [
        leads(),
        leads(refused=None),
        leads(done={}, welcome={"run": "b" * 16}),
        leads(welcome={}),
        leads(welcome={"run": "b" * 15}),
        leads(welcome={"run": "x" * 16}),
        leads(unknown={}),
        leads(refused={"kind": "unheard-of", "detail": "", "headers": {}}),
        leads(forwarded={"status": 101, "headers": []}),
        leads(beat={"wanted": 1, "lease_seconds": None, "urgent": False}),
        leads(download_permission={"version": 3, "sha256": DIGEST, "name": "x" * 257}),
        leads(download_permission={"version": 3, "sha256": DIGEST[1:], "name": "x"}),
        leads(farewell={"kind": "bored", "reason": ""}),
        b'{"messages":[]}',
        b'{"epoch":-1,"messages":[]}',
    ],
    ids=lambda head: head[:70].decode(),
)
def test_what_no_leader_sends_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_told(head, memoryview(b""))


def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    body = Forward(method="GET", path="/", headers=(), peer="", body=bytes(2**20 + 1))
    head = Forward(method="GET", path="/", headers=(("x", "\1" * 2**13),) * 100, peer="")
    answer = Forwarded(status=200, headers=(), body=bytes(2**21 + 1))
    for call in (lambda: asked(1, body), lambda: asked(1, head), lambda: told(1, answer)):
        with pytest.raises(Refusal) as caught:
            call()
        assert caught.value.kind == "too-large"
