"""Segments: files that hold many small bodies, which reach the disk together."""

import errno
import os
from pathlib import Path

from offbeat.service.store import sync_folder

_FULL = 2**26  # bytes from which on there is a new one


class Segments:
    """Appends bodies to a segment; who needs one on disk has to sync its file.

    Args:
        folder: Where they are; nobody else's files there are called ``segment-…``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._path = Path()
        self._size = 0
        self._last = 0  # where the last body begins
        self._made = 0

    def append(self, body: bytes | bytearray) -> tuple[Path, int]:
        """Put a body into a segment, not yet on disk; return its file, and where it begins.

        Raises:
            OSError: The disk is full, for instance.
        """
        # It is not there any more if a checkpoint has covered all that was in it.
        if self._descriptor < 0 or self._size > _FULL or not self._path.exists():
            self._begin()
        begin = self._last = self._size
        # After an error the next one is written over what is left of this one.
        written = os.pwrite(self._descriptor, body, begin)
        if written < len(body):
            raise OSError(errno.ENOSPC, "No space left on device")
        # So that whoever maps it finds its entries aligned.
        self._size += len(body) + -len(body) % 8
        return self._path, begin

    def take_back(self) -> None:
        """Remove the body that was appended last, which nobody needs."""
        self._size = self._last
        os.ftruncate(self._descriptor, self._size)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self) -> None:
        self.close()
        while True:
            self._made += 1
            self._path = self._folder / f"segment-{self._made}"
            if not self._path.exists():  # an earlier server's
                break
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        self._size = 0
        sync_folder(self._folder)
