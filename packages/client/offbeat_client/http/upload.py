"""The upload of an update until its receipt, in pieces if the connection breaks."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from offbeat_client.client_folder.outbox import Outbox, Pending
from offbeat_client.http.connection import Attempts, Connection, read_answer
from offbeat_client.private_updates import PrivateUpdates
from offbeat_core.compression import uncompressed_bytes
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import ServiceError, UnreachableError
from offbeat_core.messages import CheckedIn, Received, UploadState

LARGE_BYTES = 1_000_000
"""Before a larger body is sent, ask whether the server wants it."""

_BLOCK_BYTES = 1 << 18
_READ_SECONDS = 300.0  # a server takes a while to check 2 GB and to write them to disk
_DIGEST_ATTEMPTS = 3
# After these the server says from where to resume.
_RESUMABLE = ("wrong-offset", "upload-in-progress", "wrong-digest")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The end of an upload.

    ``staleness`` is None where the server no longer knows it; ``upload_seconds`` are measured and scaled to an
    uncompressed update, None unless it was sent in one piece; ``following`` is the answer to a check-in, if there is
    one; ``audit_head`` is that of the server's audit log.
    """

    counted: bool
    staleness: int | None = None
    upload_seconds: float | None = None
    following: CheckedIn | None = None
    audit_head: str | None = None


def upload(connection: Connection, pending: Pending, body: Path, *, ask_first: bool, check_in: bool) -> Delivery:
    """Send an update until the server has given its receipt.

    ``ask_first`` asks whether the server wants it, and which part it has. ``check_in`` asks for the next visit with the
    last piece.
    """
    assert pending.announcement is not None
    size: int = pending.announcement["bytes"]
    attempts, offset, wrong_digests, ask = Attempts(connection.backoff), 0, 0, ask_first
    while True:
        try:
            if ask:
                state = read_answer(connection.send("GET", f"/v1/uploads/{pending.visit}"), UploadState)
                if state.receipt is not None:
                    return Delivery(bool(state.receipt.counted), state.receipt.staleness, audit_head=state.audit_head)
                if state.offset > offset:
                    attempts.progressed()
                offset = min(state.offset, size)
            ask = True
            began = time.perf_counter()
            received = _put(connection, pending.visit, pending.announcement, body, offset, check_in)
            if received is not None:
                seconds = time.perf_counter() - began
                upload_seconds = None if offset else seconds * uncompressed_bytes(pending.length) / size
                receipt = received.receipt
                return Delivery(
                    bool(receipt.counted), receipt.staleness, upload_seconds, received.next, received.audit_head
                )
            attempts.failed(UnreachableError(f"the server has not answered the upload of visit {pending.visit}"))
        except UnreachableError as error:
            attempts.failed(error)
        except ServiceError as error:
            wrong_digests += error.kind == "wrong-digest"
            if wrong_digests >= _DIGEST_ATTEMPTS or not (error.may_pass or error.kind in _RESUMABLE):
                raise
            attempts.failed(error, error.retry_after or 0.0)


def _put(
    connection: Connection, visit: int, announcement: dict[str, Any], body: Path, offset: int, check_in: bool
) -> Received | None:
    """Send the body from an offset; return None if the server still lacks a part."""
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(announcement["bytes"] - offset),
        "Upload-Offset": str(offset),
        "Offbeat-Update": json.dumps(announcement),
    }
    content = _blocks(body, offset)
    path = f"/v1/uploads/{visit}{'?checkin=true' if check_in else ''}"
    response = connection.send("PUT", path, content=content, headers=headers, read_seconds=_READ_SECONDS)
    return None if response.status_code == HTTPStatus.ACCEPTED else read_answer(response, Received)


def _blocks(path: Path, offset: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while block := file.read(_BLOCK_BYTES):
            yield block


def upload_share(
    connection: Connection, pending: Pending, private: PrivateUpdates, outbox: Outbox, *, check_in: bool
) -> Delivery:
    """Make an update's share if it has none, and send it until the receipt.

    A share that exists is sent unchanged, also after a crash. Only after ``stale-share``, when the helper would refuse
    it, the delta becomes another one.

    Raises:
        OffbeatError: The update is not a private one of this run, or the server's facts are refused.
    """
    if not private.owns(pending):
        raise OffbeatError(f"visit {pending.visit}: the update is not masked for this run: it stays here")
    attempts, may_have_begun = Attempts(connection.backoff), True
    while True:
        if pending.announcement is None:
            state = connection.ask("GET", f"/v1/uploads/{pending.visit}", UploadState)
            if state.receipt is not None:
                return Delivery(bool(state.receipt.counted), state.receipt.staleness, audit_head=state.audit_head)
            if state.share is None:
                attempts.failed(UnreachableError(f"{connection.url} does not have the helper's key and head now"))
                continue
            pending, may_have_begun = private.mask(pending, state.share), False
        try:
            body = outbox.body(pending.visit)
            return upload(connection, pending, body, ask_first=may_have_begun, check_in=check_in)
        except ServiceError as error:
            if error.kind != "stale-share":
                raise
            pending = outbox.drop_share(pending)
            attempts.failed(error)
