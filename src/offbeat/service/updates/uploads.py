"""Bodies of updates on their way to the server: in pieces, over lines that break."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from offbeat.service.refusal import Refusal
from offbeat.service.updates.growing_file import GrowingFile

T = TypeVar("T")

SMALL = 2**20
"""Bodies up to so many bytes are taken in whole; they go into a segment with others."""

_BATCH = 2**20  # bytes that are written at once
_MOST_PIECES = 512  # that are written at once; systems take no more than 1024
_SLOWEST = 1000  # bytes a second, over a whole request
_MOST_SMALL = 32  # small bodies of one client at once
_MOST_HELD = 2  # large bodies of one client that are whole, and neither counted nor deleted yet


class Whole(NamedTuple):
    """A large body that is whole, but not on disk yet."""

    path: Path
    sha256: str


class Uploads:
    """Takes bodies in.

    A large one has a file of its own in ``partial/``, which grows as it comes. When it is whole it moves to
    ``updates/``, under a name that no other body ever has.

    A client has one large body on its way at most: if it begins again over another line, the one before is given up.
    While two of its bodies are whole and being checked, it may not send a third. So at most three of its bodies are on
    the disk without being counted.

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
        self._files: dict[int, GrowingFile] = {}  # by client, the one that is not whole, open or not
        self._small: dict[int, int] = {}  # by client, how many
        self._held: dict[int, int] = {}  # by client, how many are whole, and neither counted nor deleted yet
        self._made = 0  # files moved to updates/

    def offset(self, client: int, visit: int) -> int:
        """Return how much of a body is there."""
        try:
            return self._path(client, visit).stat().st_size
        except FileNotFoundError:
            return 0

    async def read(self, client: int, size: int, pieces: AsyncIterator[bytes]) -> bytes:
        """Return a small body of this size.

        Raises:
            Refusal: It has another size, or does not come.
        """

        async def read() -> bytes:
            body = bytearray()
            async for piece in self._patiently(pieces, size):
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

    async def write(
        self, client: int, visit: int, offset: int, size: int, pieces: AsyncIterator[bytes]
    ) -> "int | Whole":
        """Put a piece of a large body where it belongs, as it comes.

        Returns:
            How much is there then; if that is all, the file in ``updates/``, which is the caller's and not on disk yet.

        Raises:
            Refusal: The offset is not where the body ends, too much comes or nothing more, too many are being checked,
                ``busy``.
            OSError: The disk is full, for instance.
        """
        if self._held.get(client, 0) >= _MOST_HELD:
            raise _busy()
        return await self._alone(client, size, self._write(client, visit, offset, size, pieces))

    async def _write(
        self, client: int, visit: int, offset: int, size: int, pieces: AsyncIterator[bytes]
    ) -> "int | Whole":
        path = self._path(client, visit)
        for other in self._partial.glob(f"{client}-*"):
            if other != path:
                other.unlink()
        there = self.offset(client, visit)
        if offset not in (0, there):
            raise wrong_offset(there)
        file = self._files[client] = GrowingFile(path, offset, self._files.get(client))
        try:
            await self._copy(file, size, pieces)
        finally:
            file.close()
        if file.size < size:
            return file.size
        del self._files[client]
        whole = self._new_path(path.name)
        path.replace(whole)
        return Whole(whole, file.sha256())

    @contextmanager
    def holding(self, client: int) -> Generator[None]:
        """Count a large body of the client as one that is whole, and neither counted nor deleted yet."""
        self._held[client] = self._held.get(client, 0) + 1
        try:
            yield
        finally:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]

    async def _copy(self, file: GrowingFile, size: int, pieces: AsyncIterator[bytes]) -> None:
        """Write one batch in a thread while the next arrives; what has arrived is kept, however the line ends."""
        loop = asyncio.get_running_loop()
        batch: list[bytes] = []
        there, waiting = file.size, 0  # bytes that came; in the batch
        writing = loop.run_in_executor(None, file.prepare)
        try:
            async for piece in self._patiently(pieces, size):
                there += len(piece)
                if there > size:
                    raise Refusal("too-large", f"the update was said to have {size} bytes, but more came")
                batch.append(piece)
                waiting += len(piece)
                if waiting >= _BATCH or len(batch) == _MOST_PIECES:
                    await asyncio.shield(writing)
                    writing = loop.run_in_executor(None, file.write, batch)
                    batch, waiting = [], 0
        finally:
            # Before the file is closed: its number may soon be another's.
            await _end_of(writing)
            if batch:
                await _end_of(loop.run_in_executor(None, file.write, batch))

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

    async def _patiently(self, pieces: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_seconds + size / _SLOWEST
        while True:
            try:
                async with asyncio.timeout_at(min(loop.time() + self._patience_seconds, end)):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if loop.time() < end:
                    problem = f"nothing came for {self._patience_seconds:g} s"
                else:
                    problem = f"{size} bytes came slower than {_SLOWEST} bytes a second"
                raise Refusal("too-slow", f"{problem}: go on later") from None
            yield piece

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


async def _end_of(writing: "asyncio.Future[None]") -> None:
    """Wait for a thread, which cannot be cancelled."""
    while not writing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([writing])
    writing.result()


def _busy() -> Refusal:
    return Refusal("busy", "too many uploads are under way: try again in a while", {"Retry-After": "5"})


def wrong_offset(there: int) -> Refusal:
    """Return what is said to who goes on elsewhere than where the body ends."""
    return Refusal("wrong-offset", f"{there} bytes are here: go on from there", {"Upload-Offset": str(there)})
