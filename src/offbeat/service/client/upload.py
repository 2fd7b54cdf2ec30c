"""The upload of a finished update: in as many pieces as the line allows, until there is a receipt."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from offbeat.compression import uncompressed_bytes
from offbeat.service.client.connection import Connection, answer
from offbeat.service.client.messages import CheckIn, UploadState, read_upload_state
from offbeat.service.client.outbox import Pending
from offbeat.service.client.refusal import ServiceError, UnreachableError
from offbeat.service.client.retry import Attempts

LARGE_BYTES = 1_000_000
"""Before a larger body is sent the server is asked whether it wants it."""

_BLOCK_BYTES = 1 << 18
_READ_SECONDS = 300.0  # a server that has 2 GB to check and to write to disk takes a while
_DIGEST_ATTEMPTS = 3
# After these the server says from where to go on.
_AGAIN = ("wrong-offset", "upload-in-progress", "wrong-digest")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an update.

    Attributes:
        counted: Whether it counted.
        upload_seconds: Measured seconds of its upload, as if it had been uncompressed; None if it was not sent in one
            piece.
        following: What a check-in would have got; None if the server did not say so.
    """

    counted: bool
    upload_seconds: float | None = None
    following: CheckIn | None = None


def upload(
    connection: Connection, pending: Pending, body: Path, client: int, *, ask_first: bool, check_in: bool
) -> Receipt:
    """Send an update until the server has given its receipt.

    Args:
        connection: To the server.
        pending: The update.
        body: The file with its body.
        client: Whose it is.
        ask_first: Whether part of it may have been sent before; large ones are asked for in any case.
        check_in: Whether the client wants to hear of its next visit.

    Raises:
        UnreachableError: No attempt got any further.
        ServiceError: The server refuses it, or knows nothing of the visit.
    """
    size: int = pending.announcement["bytes"]
    attempts, offset, wrong_digests = Attempts(connection.backoff), 0, 0
    ask = ask_first or size > LARGE_BYTES
    while True:
        try:
            if ask:
                state = _ask(connection, pending.visit, client)
                if state.counted is not None:
                    return Receipt(state.counted)
                if state.offset > offset:
                    attempts.progressed()
                offset = min(state.offset, size)
            ask = True
            began = time.perf_counter()
            state = _put(connection, pending, body, offset, client, check_in)
            if state.counted is not None:
                seconds = time.perf_counter() - began
                whole_seconds = None if offset else seconds * uncompressed_bytes(pending.length) / size
                return Receipt(state.counted, whole_seconds, state.following)
            attempts.failed(UnreachableError(f"the server has not answered the upload of visit {pending.visit}"))
        except UnreachableError as error:
            attempts.failed(error)
        except ServiceError as error:
            wrong_digests += error.kind == "wrong-digest"
            if wrong_digests >= _DIGEST_ATTEMPTS or not (error.may_pass or error.kind in _AGAIN):
                raise
            attempts.failed(error, error.retry_after or 0.0)


def _ask(connection: Connection, visit: int, client: int) -> UploadState:
    return read_upload_state(answer(connection.send("GET", f"/v1/uploads/{visit}")), client)


def _put(connection: Connection, pending: Pending, body: Path, offset: int, client: int, check_in: bool) -> UploadState:
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(pending.announcement["bytes"] - offset),
        "Upload-Offset": str(offset),
        "Offbeat-Update": json.dumps(pending.announcement),
    }
    content = _blocks(body, offset)
    path = f"/v1/uploads/{pending.visit}{'?checkin=true' if check_in else ''}"
    response = connection.send("PUT", path, content=content, headers=headers, read_seconds=_READ_SECONDS)
    return read_upload_state(answer(response), client)


def _blocks(path: Path, offset: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while block := file.read(_BLOCK_BYTES):
            yield block
