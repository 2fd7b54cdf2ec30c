"""Bodies of updates on their way to the disk: in pieces, over lines that break."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from offbeat.service.refusal import Refusal
from offbeat.service.store import sync_folder

T = TypeVar("T")

SMALL = 2**20
"""Bodies up to so many bytes go into a segment with others, and reach the disk together."""

_SEGMENT = 2**26
_BATCH = 2**20  # what is written at once
_MOST_SMALL = 32  # small bodies of one client at once


class Uploads:
    """Puts bodies into files.

    A large one has a file of its own in ``partial/``, which grows as it comes. When it is whole it moves to
    ``updates/``, under a name that no other body ever has. Small ones are appended to a segment in ``updates/``.

    A client has one large body on its way at most: if it begins again over another line, the one before is given up.

    Args:
        folder: The store's.
        budget: How many bytes of uploads may be under way.
        patience_seconds: How long to wait for the next piece of a body.
    """

    def __init__(self, folder: Path, budget: int, patience_seconds: float = 60.0) -> None:
        self._partial = folder / "partial"
        self._updates = folder / "updates"
        self._budget = budget
        self._patience_seconds = patience_seconds
        self._bytes = 0  # of uploads that are under way
        self._large: dict[int, asyncio.Task[Any]] = {}  # by client
        self._small: dict[int, int] = {}  # by client, how many
        self._segment = -1
        self._segment_path = Path()
        self._segment_size = 0
        self._made = 0  # files in updates/

    def offset(self, client: int, visit: int) -> int:
        """Return how much of a body is there."""
        try:
            return self._path(client, visit).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, body: bytes) -> tuple[Path, int]:
        """Put a small body into a segment, not yet on disk; return its file, and where it begins.

        Raises:
            Refusal: The disk is full.
        """
        try:
            # It is not there any more if a checkpoint has covered all that was in it.
            if self._segment < 0 or self._segment_size > _SEGMENT or not self._segment_path.exists():
                self._open_segment()
            begin = self._segment_size
            # After an error the next one is written over what is left of this one.
            written = os.pwrite(self._segment, body, begin)
            if written < len(body):
                raise OSError(None, "no space left")
        except OSError as error:
            raise no_space(error) from None
        # So that whoever maps it finds its entries aligned.
        self._segment_size += len(body) + -len(body) % 8
        return self._segment_path, begin

    def take_back(self, begin: int) -> None:
        """Forget the body that was appended last, at ``begin``."""
        self._segment_size = begin

    def _open_segment(self) -> None:
        if self._segment >= 0:
            os.close(self._segment)
            self._segment = -1
        self._segment_path = self._new_path("segment")
        self._segment = os.open(self._segment_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        self._segment_size = 0
        sync_folder(self._updates)

    async def read(self, client: int, size: int, pieces: AsyncIterator[bytes]) -> bytes:
        """Return a small body of this size.

        Raises:
            Refusal: It has another size, or does not come.
        """

        async def read() -> bytes:
            body = bytearray()
            async for piece in self._patiently(pieces):
                body += piece
                if len(body) > size:
                    break
            if len(body) != size:
                raise Refusal("malformed-request", f"{size} bytes were announced, {len(body)} came")
            return bytes(body)

        if self._small.get(client, 0) >= _MOST_SMALL:
            raise _busy()
        self._small[client] = self._small.get(client, 0) + 1
        try:
            with self._within_budget(size):
                return await read()
        finally:
            self._small[client] -= 1
            if not self._small[client]:
                del self._small[client]

    async def write(self, client: int, visit: int, offset: int, size: int, pieces: AsyncIterator[bytes]) -> int | Path:
        """Put a piece of a large body where it belongs, as it comes.

        Returns:
            How much is there then; if that is all, the file in ``updates/``, which is the caller's.

        Raises:
            Refusal: The offset is not where the body ends, too much comes or nothing more, or the disk is full.
        """
        return await self._alone(client, size, self._write(client, visit, offset, size, pieces))

    async def _write(self, client: int, visit: int, offset: int, size: int, pieces: AsyncIterator[bytes]) -> int | Path:
        path = self._path(client, visit)
        try:
            for other in self._partial.glob(f"{client}-*"):
                if other != path:
                    other.unlink()
            there = self.offset(client, visit)
            if offset not in (0, there):
                raise wrong_offset(there)
            descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | (0 if offset else os.O_TRUNC), 0o600)
            try:
                offset = await self._copy(descriptor, offset, size, pieces)
            finally:
                os.close(descriptor)
            if offset < size:
                return offset
            whole = self._new_path(path.name)
            path.replace(whole)
            return whole
        except OSError as error:
            raise no_space(error) from None

    async def _copy(self, descriptor: int, offset: int, size: int, pieces: AsyncIterator[bytes]) -> int:
        """Write one batch in a thread while the next arrives; what has arrived is kept, however the line ends."""
        loop = asyncio.get_running_loop()
        batch: list[bytes] = []
        waiting = 0  # bytes in the batch
        writing: asyncio.Future[None] | None = None
        try:
            async for piece in self._patiently(pieces):
                if offset + waiting + len(piece) > size:
                    raise Refusal("too-large", f"the update was said to have {size} bytes, but more came")
                batch.append(piece)
                waiting += len(piece)
                if waiting >= _BATCH:
                    if writing is not None:
                        await writing
                    writing = loop.run_in_executor(None, _write_at, descriptor, batch, offset)
                    offset, batch, waiting = offset + waiting, [], 0
        finally:
            # Before the descriptor is closed: its number may soon be another file's.
            if writing is not None:
                await asyncio.wait([writing])
                writing.result()
            _write_at(descriptor, batch, offset)
        return offset + waiting

    async def _alone(self, client: int, size: int, work: Coroutine[Any, Any, T]) -> T:
        while (before := self._large.get(client)) is not None:
            before.cancel()
            await asyncio.wait([before])
            if self._large.get(client) is before:
                del self._large[client]
        task = asyncio.create_task(work)
        self._large[client] = task
        try:
            with self._within_budget(size):
                await asyncio.wait([task])
            if task.cancelled():
                raise Refusal("wrong-offset", "the upload went on over another line: ask for the offset")
            return task.result()
        finally:
            task.cancel()
            if self._large.get(client) is task:
                del self._large[client]

    @contextmanager
    def _within_budget(self, size: int) -> Generator[None]:
        if self._bytes and self._bytes + size > self._budget:
            raise _busy()
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size

    async def _patiently(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._patience_seconds):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Refusal("too-slow", f"nothing came for {self._patience_seconds:g} s: go on later") from None
            yield piece

    async def finish(self, path: Path, sha256: str) -> None:
        """Check the digest of a whole body, and bring it to disk.

        Raises:
            Refusal: Its digest is another one.
        """
        if await asyncio.to_thread(_sync_and_digest, path) != sha256:
            raise wrong_digest()
        await asyncio.to_thread(sync_folder, self._updates)

    def close(self) -> None:
        """Close the segment."""
        if self._segment >= 0:
            os.close(self._segment)
            self._segment = -1

    def _new_path(self, name: str) -> Path:
        while True:
            self._made += 1
            path = self._updates / f"{name}-{self._made}"
            if not path.exists():  # an earlier server's
                return path

    def _path(self, client: int, visit: int) -> Path:
        return self._partial / f"{client}-{visit}"


def clean_up(folder: Path, known: Collection[str]) -> None:
    """Tidy ``updates/`` after a restart; files that are none of ours stay.

    Args:
        folder: The store's.
        known: The names of the files that the log refers to.
    """
    for path in (folder / "updates").iterdir():
        if path.name in known:
            continue
        if re.fullmatch(r"segment-\d+", path.name):
            path.unlink()
        elif re.fullmatch(r"\d+-\d+-\d+", path.name):
            # It was whole when the server ended, but nobody was told; it need not come again.
            path.replace(folder / "partial" / path.name.rpartition("-")[0])


def check_digest(body: bytes, sha256: str) -> None:
    """Raise ``Refusal`` unless this is the body's SHA-256."""
    if hashlib.sha256(body).hexdigest() != sha256:
        raise wrong_digest()


def wrong_digest() -> Refusal:
    """Return what is said of a body that is not what was announced."""
    return Refusal("wrong-digest", "the body has another SHA-256 than was announced: upload it again from the start")


def _sync_and_digest(path: Path) -> str:
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_at(descriptor: int, pieces: list[bytes], offset: int) -> None:
    if not pieces:
        return
    written = os.pwritev(descriptor, pieces, offset)
    rest = memoryview(b"".join(pieces))[written:] if written < sum(map(len, pieces)) else memoryview(b"")
    while rest:
        offset += written
        written = os.pwrite(descriptor, rest, offset)
        rest = rest[written:]


def _busy() -> Refusal:
    return Refusal("busy", "too many uploads are under way: try again in a while", {"Retry-After": "5"})


def wrong_offset(there: int) -> Refusal:
    """Return what is said to who goes on elsewhere than where the body ends."""
    return Refusal("wrong-offset", f"{there} bytes are here: go on from there", {"Upload-Offset": str(there)})


def no_space(error: OSError) -> Refusal:
    """Return what is said if the disk cannot be written."""
    what = error.strerror or "no space left"
    return Refusal("no-space", f"the server's disk cannot be written ({what}): try again later", {"Retry-After": "5"})
