"""A check of what a store of blobs promises, for the start of a server."""

import asyncio
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from secrets import token_hex

from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.blobs import (
    BlobExistsError,
    Blobs,
    BlobsUnavailableError,
    BrokenBlobError,
    NoSuchBlobError,
)
from offbeat.service.blobs.open_blobs import CREDENTIALS

_RACERS = 4


async def check(blobs: Blobs) -> None:
    """Check that a store does what ``Blobs`` promises.

    It must be possible to write, read, list and delete, and a name must be given once: four writers try to create one
    name at the same time. Whether the store syncs what it acknowledges cannot be seen from outside.

    Raises:
        OffbeatError: It cannot be used; one line says why.
    """
    name = f"probe/{token_hex(16)}"
    try:
        await _check_reading(blobs, name, await _winner(blobs, name))
    except BaseException:
        with suppress(BlobsUnavailableError):
            await blobs.delete(name)
        raise
    with _one_line(blobs, "delete from"):
        await blobs.delete(name)
    with _one_line(blobs, "read from"), suppress(NoSuchBlobError):
        await asyncio.to_thread(blobs.fetch, name)
        raise OffbeatError(f"cannot use {blobs}: it still has a blob that it has deleted")


async def _winner(blobs: Blobs, name: str) -> bytes:
    """Return what the only successful one of several writers created."""
    contents = [os.urandom(64) for _ in range(_RACERS)]
    outcomes = await asyncio.gather(*(blobs.create(name, content) for content in contents), return_exceptions=True)
    with _one_line(blobs, "write to"):
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, BlobExistsError):
                raise outcome
    winners = [content for content, outcome in zip(contents, outcomes, strict=True) if outcome is None]
    if len(winners) != 1:
        wrong = f"{len(winners)} of {_RACERS} writers could create one name, so blobs could be overwritten"
        raise OffbeatError(f"cannot use {blobs}: {wrong}; take a store with conditional writes (If-None-Match)")
    return winners[0]


async def _check_reading(blobs: Blobs, name: str, content: bytes) -> None:
    with _one_line(blobs, "read from"):
        await asyncio.to_thread(blobs.fetch, name, hashlib.sha256(content).hexdigest())
    with _one_line(blobs, "list"):
        if name not in [listed async for listed in blobs.names("probe")]:
            raise OffbeatError(f"cannot use {blobs}: it does not list a blob that it has")


@contextmanager
def _one_line(blobs: Blobs, what: str) -> Generator[None]:
    try:
        yield
    except (BlobsUnavailableError, BrokenBlobError, NoSuchBlobError) as error:
        variables = CREDENTIALS.get(str(blobs).partition(":")[0])
        advice = f" (credentials: {variables} in the environment)" if variables else ""
        raise OffbeatError(f"cannot {what} {blobs}: {error}{advice}") from error
