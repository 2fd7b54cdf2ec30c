"""Segments: files that hold many small updates, which are synced together."""

import errno
import os
import weakref
from collections.abc import Collection
from pathlib import Path

from offbeat_core.files import sync_file, sync_folder

_FULL = 2**26  # bytes; a larger segment is not appended to


class Segment:
    """A new file that stays open while anything refers to it, for its sync."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        weakref.finalize(self, os.close, self._descriptor)

    def write(self, body: bytes | bytearray, begin: int) -> int:
        """Write a body from the byte ``begin`` on; return how many bytes were written."""
        return os.pwrite(self._descriptor, body, begin)

    def truncate(self, size: int) -> None:
        """Remove all bytes beyond a size."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Wait until all that was written is on disk."""
        sync_file(self._descriptor)


class Segments:
    """Appends bodies to a segment; the caller has to sync it.

    No other files in the folder are called ``segment-…``. ``current`` is the segment that was appended to last.
    """

    def __init__(self, folder: Path) -> None:
        self.current: Segment | None = None
        self._folder = folder
        self._size = 0
        self._last = 0  # where the last body begins
        self._last_number = 0

    def append(self, body: bytes | bytearray) -> tuple[Segment, int]:
        """Append a body, not synced to disk; return its segment and its offset there."""
        if self.current is None or self._size > _FULL:
            self.current = self._make()
            self._size = 0
        begin = self._last = self._size
        # After an error the next body overwrites the rest of this one.
        written = self.current.write(body, begin)
        if written < len(body):
            raise OSError(errno.ENOSPC, "No space left on device")
        # Aligned, for memory maps.
        self._size += len(body) + -len(body) % 8
        return self.current, begin

    def remove_last(self) -> None:
        """Remove the body that was appended last."""
        assert self.current is not None
        self._size = self._last
        self.current.truncate(self._size)

    def release(self, deleted: Collection[Path]) -> None:
        """Release the current segment if its file was deleted, which frees its space."""
        if self.current is not None and self.current.path in deleted:
            self.current = None

    def close(self) -> None:
        """Release the current segment."""
        self.current = None

    def _make(self) -> Segment:
        self._last_number += 1
        while (path := self._folder / f"segment-{self._last_number}").exists():  # an earlier server's
            self._last_number += 1
        segment = Segment(path)
        sync_folder(self._folder)
        return segment
