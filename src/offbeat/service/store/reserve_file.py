"""A file that keeps some of the disk back, to be released when the disk is full."""

import os
from contextlib import suppress
from pathlib import Path


class Reserve:
    """A file of which only the size matters.

    Args:
        path: The file; an earlier server's is deleted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        path.unlink(missing_ok=True)

    def hold(self, size: int) -> bool:
        """Keep at least ``size`` bytes; return whether the disk has them.

        If it does not have them, nothing is kept.
        """
        if self._size >= size:
            return True
        try:
            with self._path.open("ab") as file:
                _allocate(file.fileno(), size)
        except OSError:
            self.release()
            return False
        self._size = size
        return True

    def release(self) -> bool:
        """Free the space; return whether any was held."""
        was_held, self._size = self._size > 0, 0
        with suppress(OSError):  # then there is no more space than before
            self._path.unlink()
        return was_held


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    os.lseek(descriptor, 0, os.SEEK_SET)
    for begin in range(0, size, 1 << 20):
        os.write(descriptor, bytes(min(1 << 20, size - begin)))
