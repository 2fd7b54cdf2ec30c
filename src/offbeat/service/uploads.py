"""Bodies of updates on their way to the disk: in pieces, over lines that break."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from offbeat.service.refusal import Refusal
from offbeat.service.store import sync_folder

SMALL = 2**20
"""Bodies up to so many bytes go into a segment with others, and reach the disk together."""

_SEGMENT = 2**26
_PIECE = 2**20  # what is written at once


class Uploads:
    """Puts bodies into files.

    A large one has a file of its own in ``partial/``, which grows as it comes and moves to ``updates/`` when it is
    whole and on disk. Small ones are appended to a segment in ``updates/``.

    Args:
        folder: The store's.
        budget: How many bytes of large uploads may be under way.
    """

    def __init__(self, folder: Path, budget: int) -> None:
        self._partial = folder / "partial"
        self._updates = folder / "updates"
        self._budget = budget
        self._under_way: dict[int, tuple[object, int]] = {}  # by client: whose request it is, and its size
        self._segment = -1
        self._segment_path = Path()
        self._segment_size = 0
        self._segments = 0

    def offset(self, client: int, visit: int) -> int:
        """Return how much of a body is there."""
        try:
            return self._path(client, visit).stat().st_size
        except FileNotFoundError:
            return 0

    def discard(self, client: int, visit: int) -> None:
        """Forget what is there of a body."""
        self._path(client, visit).unlink(missing_ok=True)

    def append(self, body: bytes) -> tuple[Path, int, int]:
        """Put a small body into a segment; return its file, where it begins, and the descriptor of the file.

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
            raise _no_space(error) from None
        self._segment_size += len(body)
        return self._segment_path, begin, self._segment

    def _open_segment(self) -> None:
        if self._segment >= 0:
            os.close(self._segment)
            self._segment = -1
        while self._segment < 0:
            self._segments += 1
            self._segment_path = self._updates / f"segment-{self._segments}"
            try:
                self._segment = os.open(self._segment_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            except FileExistsError:  # an earlier server's
                continue
        self._segment_size = 0
        sync_folder(self._updates)

    async def write(self, client: int, visit: int, offset: int, size: int, pieces: AsyncIterator[bytes]) -> int:
        """Put a piece of a large body where it belongs, as it comes; return how much is there then.

        If the client begins again over another line, this one is given up.

        Raises:
            Refusal: The offset is not where the body ends, it comes too much, or the disk is full.
        """
        self._begin(client, visit, size)
        mine = self._under_way[client][0]
        try:
            for other in self._partial.glob(f"{client}-*"):
                if other != self._path(client, visit):
                    other.unlink()
            there = self.offset(client, visit)
            if offset == 0 < there:
                self.discard(client, visit)
            elif offset != there:
                raise Refusal(
                    "wrong-offset", f"{there} bytes are here: go on from there", {"Upload-Offset": str(there)}
                )
            descriptor = os.open(self._path(client, visit), os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                async for piece in _in_larger_pieces(pieces):
                    if self._under_way.get(client, (None, 0))[0] is not mine:
                        raise Refusal("wrong-offset", "the upload went on over another line")
                    if offset + len(piece) > size:
                        raise Refusal("too-large", f"the update was said to have {size} bytes, but more came")
                    await asyncio.to_thread(_write_at, descriptor, piece, offset)
                    offset += len(piece)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _no_space(error) from None
        finally:
            if self._under_way.get(client, (None, 0))[0] is mine:
                del self._under_way[client]
        return offset

    def _begin(self, client: int, visit: int, size: int) -> None:
        others = sum(bytes_ for other, (_, bytes_) in self._under_way.items() if other != client)
        if others + size > self._budget and others:
            raise Refusal("busy", "too many uploads are under way: try again in a while", {"Retry-After": "5"})
        self._under_way[client] = (object(), size)

    async def finish(self, client: int, visit: int, sha256: str) -> Path:
        """Check the digest of a whole body, bring it to disk, and return its file in ``updates/``.

        Raises:
            Refusal: Its digest is another one; it is forgotten.
        """
        path = self._path(client, visit)
        try:
            if await asyncio.to_thread(_sync_and_digest, path) != sha256:
                self.discard(client, visit)
                raise wrong_digest()
        except OSError as error:
            raise _no_space(error) from None
        return path

    async def keep(self, path: Path) -> Path:
        """Move a body that has been checked to ``updates/``, and return its file there."""
        kept = self._updates / path.name

        def move() -> None:
            path.replace(kept)
            sync_folder(self._updates)

        await asyncio.to_thread(move)
        return kept

    def close(self) -> None:
        """Close the segment."""
        if self._segment >= 0:
            os.close(self._segment)
            self._segment = -1

    def _path(self, client: int, visit: int) -> Path:
        return self._partial / f"{client}-{visit}"


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


def _write_at(descriptor: int, piece: bytes, offset: int) -> None:
    view = memoryview(piece)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


async def _in_larger_pieces(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join what comes: one call for a thread costs more than it takes to write a small piece."""
    joined = bytearray()
    async for piece in pieces:
        joined += piece
        if len(joined) >= _PIECE:
            yield bytes(joined)
            joined.clear()
    if joined:
        yield bytes(joined)


def _no_space(error: OSError) -> Refusal:
    what = error.strerror or "no space left"
    return Refusal("no-space", f"the server's disk cannot be written ({what}): try again later", {"Retry-After": "5"})
