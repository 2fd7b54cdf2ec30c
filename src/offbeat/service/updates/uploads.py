"""Arriving bodies of updates: in pieces, and over connections that break."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar

from offbeat_core.files import files_in
from offbeat_core.serving.connections import counted

from offbeat.service.refusal import Refusal
from offbeat.service.updates.body_file import BodyFile, Digest, FindEntries

T = TypeVar("T")

SMALL = 2**16
"""Bytes of the largest body that is read into memory, and stored in the log's row."""

_BATCH = 2**20  # bytes written at once
_MAX_PIECES = 512  # written at once; systems accept 1024
_SLOWEST = 1000  # bytes a second, over a whole request
_MAX_SMALL = 32  # small bodies of one token at once
_MAX_UNDECIDED = 2  # large bodies of one client at once


class CompleteBody(NamedTuple):
    """A large body of which all bytes have arrived, not on disk yet."""

    path: Path
    digest: str  # hexadecimal
    norm: float | None  # of its vector; NaN if it is not finite, None if it was not made


class Uploads:
    """Receives bodies.

    A large body has a file of its own in ``partial/``, which grows as it arrives. When it is complete it moves to
    ``updates/``, under a name that is never used again.

    A client can upload one large body at a time: if it begins again over another connection, the first upload is given
    up. Two more may be complete and *undecided*, neither counted nor deleted yet; a third is refused. So at
    most three uncounted bodies of a client are on the disk.

    Args:
        folder: The folder of a store, or of a front.
        budget: Bytes of uploads under way, at most.
        patience_seconds: How long to wait for the next piece of a body.
        updates: The folder for complete bodies, on the same file system; None for ``updates/`` in ``folder``.
    """

    def __init__(self, folder: Path, budget: int, patience_seconds: float = 60.0, updates: Path | None = None) -> None:
        self._partial = folder / "partial"
        self._updates = updates or folder / "updates"
        self._budget = budget
        self._patience_seconds = patience_seconds
        self._bytes = 0  # of uploads under way
        self._large: dict[int, asyncio.Task[Any]] = {}  # by client, the upload under way
        self._files: dict[int, BodyFile] = {}  # by client, the incomplete body, open or not
        self._small: dict[str, int] = {}  # by token, the number of uploads under way
        self._undecided: dict[int, int] = {}  # by client

    def offset(self, client: int, visit: int) -> int:
        """Return how many bytes of a large body have arrived."""
        try:
            return self._path(client, visit).stat().st_size
        except FileNotFoundError:
            return 0

    async def read(self, token: str, size: int, pieces: AsyncIterator[bytes]) -> bytearray:
        """Return a small body of the client with this token, or raise ``Refusal``."""
        if self._small.get(token, 0) >= _MAX_SMALL:
            raise _busy()
        body = bytearray()
        with counted(self._small, token), self._within_budget(size):
            async with self._patience(size) as patience:
                async for piece in pieces:
                    body += piece
                    if len(body) > size:
                        break
                    patience.renew()
        if len(body) != size:
            raise Refusal("malformed-request", f"{size} bytes were announced, {len(body)} came")
        return body

    async def write(
        self,
        client: int,
        visit: int,
        offset: int,
        size: int,
        pieces: AsyncIterator[bytes],
        find_entries: FindEntries,
        new_digest: Callable[[], Digest],
    ) -> int | CompleteBody:
        """Append to a large body's file as pieces arrive; return its bytes so far.

        A complete body is in ``updates/``; the caller has to sync and, if the update does not count, to delete it.
        ``BodyFile`` describes ``find_entries`` and ``new_digest``.

        Raises:
            Refusal: The offset is not the body's end, too many bytes or no more bytes arrive, the client has too many
                undecided bodies, or ``busy``.
        """
        if self._undecided.get(client, 0) >= _MAX_UNDECIDED:
            raise _busy()
        open_file = partial(BodyFile, self._path(client, visit), offset, new_digest, find_entries)
        return await self._replace_upload(client, size, self._write(client, visit, offset, size, pieces, open_file))

    async def _write(
        self,
        client: int,
        visit: int,
        offset: int,
        size: int,
        pieces: AsyncIterator[bytes],
        open_file: Callable[[BodyFile | None], BodyFile],
    ) -> int | CompleteBody:
        path = self._path(client, visit)
        for other in self._partial.glob(f"{client}-*"):
            if other != path:
                other.unlink()
        arrived = self.offset(client, visit)
        if offset not in (0, arrived):
            problem = f"{arrived} bytes have arrived: go on from there"
            raise Refusal("wrong-offset", problem, {"Upload-Offset": str(arrived)})
        file = self._files[client] = open_file(self._files.get(client))
        try:
            await self._copy(file, size, pieces)
        finally:
            file.close()
        if file.size < size:
            return file.size
        del self._files[client]
        complete = self._new_path(path.name)
        try:
            path.replace(complete)
        except FileNotFoundError:
            raise Refusal("wrong-offset", "the upload was deleted: ask for the offset") from None
        return CompleteBody(complete, file.digest(), file.norm())

    async def forget(self, client: int) -> int:
        """Give up a client's upload; return how many incomplete bodies were deleted."""
        if (upload := self._large.get(client)) is not None:
            upload.cancel()
            await asyncio.wait([upload])
        self._files.pop(client, None)
        return delete_partial(self._partial, client)

    def undecided(self, client: int) -> AbstractContextManager[None]:
        """Count a large body of the client as undecided within the context."""
        return counted(self._undecided, client)

    async def _copy(self, file: BodyFile, size: int, pieces: AsyncIterator[bytes]) -> None:
        """Write one batch in a thread while the next arrives; keep all that arrives."""
        loop = asyncio.get_running_loop()
        batch: list[bytes] = []
        arrived, batch_bytes = file.size, 0
        writing = loop.run_in_executor(None, file.prepare)
        try:
            async with self._patience(size) as patience:
                async for piece in pieces:
                    arrived += len(piece)
                    if arrived > size:
                        raise Refusal("too-large", f"the update was said to have {size} bytes, but more came")
                    batch.append(piece)
                    batch_bytes += len(piece)
                    if batch_bytes >= _BATCH or len(batch) == _MAX_PIECES:
                        await asyncio.shield(writing)
                        writing = loop.run_in_executor(None, file.write, batch)
                        batch, batch_bytes = [], 0
                    patience.renew()
        finally:
            # Before the file is closed, since its descriptor may be reused.
            await _end_of(writing)
            if batch:
                await _end_of(loop.run_in_executor(None, file.write, batch))

    async def _replace_upload(self, client: int, size: int, work: Coroutine[Any, Any, T]) -> T:
        """Give up the client's upload under way, if there is one, and do this one."""
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
                raise Refusal("wrong-offset", "the upload continues over another connection: ask for the offset")
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

    def _patience(self, size: int) -> "_Patience":
        return _Patience(self._patience_seconds, size)

    def _new_path(self, name: str) -> Path:
        return self._updates / f"{name}-{token_hex(8)}"

    def _path(self, client: int, visit: int) -> Path:
        return self._partial / f"{client}-{visit}"


class _Patience:
    """A context that ends by ``Refusal`` if a body of ``size`` bytes is too slow.

    ``renew`` is called when bytes have come; ``seconds`` are the time until the next ones.
    """

    def __init__(self, seconds: float, size: int) -> None:
        self._seconds = seconds
        self._size = size
        self._now = asyncio.get_running_loop().time
        self._renewed = self._now()
        self._end = self._renewed + seconds + size / _SLOWEST
        self._timeout = asyncio.timeout(seconds)

    def renew(self) -> None:
        now = self._now()
        # A new timer takes longer than to read a piece of a fast body.
        if now - self._renewed > self._seconds / 64:
            self._timeout.reschedule(min(now + self._seconds, self._end))
            self._renewed = now

    async def __aenter__(self) -> "_Patience":
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._timeout.__aexit__(*error)
        except TimeoutError:
            if self._now() < self._end:
                problem = f"nothing came for {self._seconds:g} s"
            else:
                problem = f"{self._size} bytes came slower than {_SLOWEST} bytes a second"
            raise Refusal("too-slow", f"{problem}: go on later") from None


def delete_partial(folder: Path, client: int) -> int:
    """Delete a client's incomplete bodies in a folder; return their number."""
    paths = files_in(folder, f"{client}-*")
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)


def clean_up(folder: Path, used: Container[Path], fronts: int = 0) -> None:
    """Tidy a server's folder after a restart, except used files and unknown names.

    So many ``fronts`` keep incomplete bodies in their own folders; without any, the server does in its own.
    """
    for path in (folder / "fronts").glob("*"):
        if not path.name.isdecimal() or int(path.name) >= fronts:
            shutil.rmtree(path)
    for path in (folder / "partial").iterdir() if fronts else ():
        if re.fullmatch(r"\d+-\d+", path.name):
            path.unlink()
    for path in (folder / "updates").iterdir():
        if path in used:
            continue
        is_update = re.fullmatch(r"\d+-\d+-[0-9a-f]{16}", path.name)
        if re.fullmatch(r"sum-\d+-[0-9a-f]{16}", path.name) or (is_update and fronts):
            path.unlink()
        elif is_update:
            # The body was complete, but its client has no receipt; so it need not be uploaded again.
            path.replace(folder / "partial" / path.name.rpartition("-")[0])


async def _end_of(writing: "asyncio.Future[None]") -> None:
    """Wait for a thread, which cannot be cancelled."""
    while not writing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([writing])
    writing.result()


def _busy() -> Refusal:
    return Refusal("busy", "too many uploads are under way: try again later", {"Retry-After": "5"})
