"""Segments: files that hold many small bodies, which reach the disk together."""

import errno
import os
import weakref
from pathlib import Path

from offbeat.service.store.store import sync_folder

_FULL = 2**26  # bytes from which on there is a new one


class Segment:
    """A file that stays open until nobody needs it, so that a sync never has to open it again.

    Args:
        path: The file, which does not exist yet.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        weakref.finalize(self, os.close, self._descriptor)

    def write(self, body: bytes | bytearray, begin: int) -> int:
        """Write a body at a place; return how many bytes were written."""
        return os.pwrite(self._descriptor, body, begin)

    def truncate(self, size: int) -> None:
        """Remove what lies beyond a size, in bytes."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Wait until all that was written is on disk."""
        os.fdatasync(self._descriptor)


class Segments:
    """Appends bodies to a segment; the caller has to sync it.

    Args:
        folder: Where they are; nobody else's files there are called ``segment-…``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segment: Segment | None = None
        self._size = 0
        self._last = 0  # where the last body begins
        self._made = 0

    def append(self, body: bytes | bytearray) -> tuple[Segment, int]:
        """Put a body into a segment, not yet on disk; return the segment, and where the body begins.

        Raises:
            OSError: The disk is full, for instance.
        """
        # It is not there any more if a checkpoint has covered all that was in it.
        if self._segment is None or self._size > _FULL or not self._segment.path.exists():
            self._segment = self._new()
            self._size = 0
        begin = self._last = self._size
        # After an error the next one is written over what is left of this one.
        written = self._segment.write(body, begin)
        if written < len(body):
            raise OSError(errno.ENOSPC, "No space left on device")
        # So that whoever maps it finds its entries aligned.
        self._size += len(body) + -len(body) % 8
        return self._segment, begin

    def take_back(self) -> None:
        """Remove the body that was appended last, which nobody needs."""
        assert self._segment is not None
        self._size = self._last
        self._segment.truncate(self._size)

    def close(self) -> None:
        """Let go of the segment."""
        self._segment = None

    def _new(self) -> Segment:
        while True:
            self._made += 1
            path = self._folder / f"segment-{self._made}"
            if not path.exists():  # an earlier server's
                break
        segment = Segment(path)
        sync_folder(self._folder)
        return segment
