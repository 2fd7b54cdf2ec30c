"""The state of the server's disk, and the handling of its failures."""

import errno
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from offbeat_core.serving.console_log import event

from offbeat.service.refusal import Refusal, is_descriptor_shortage, no_space


class UnreachableFilesError(OSError):
    """A place for files that cannot be reached now."""


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Return whether the disk, or a quota on it, is full."""
    return error.errno in _FULL


def is_temporary(error: OSError) -> bool:
    """Return whether a failure may pass; else the disk's content is unknown."""
    return is_full(error) or is_descriptor_shortage(error) or isinstance(error, UnreachableFilesError)


class Disk:
    """The state of the disk, for any thread, and the handling of its failures.

    While the disk is full the server takes in nothing new. It releases the reserve, so that the log can be written to
    its end and a checkpoint can delete what it covers. Work resumes once there is room for the reserve again.

    Args:
        reserve: The file that keeps space back for a full disk.
        failed: Called with a failure that does not pass: the server has to end.

    Attributes:
        problem: The reason why nothing is taken in; None if the disk is not full.
    """

    def __init__(self, reserve: Path, failed: Callable[[BaseException], None]) -> None:
        self.problem: str | None = None
        self._reserve = Reserve(reserve)
        self._failed = failed
        self._lock = threading.Lock()

    def refusal(self, error: OSError) -> Refusal:
        """Return the refusal for an error; one that does not pass ends the server."""
        if not is_temporary(error):
            self._failed(error)
            return Refusal("stopping", "the server's disk has failed: try again later", {"Retry-After": "5"})
        if isinstance(error, UnreachableFilesError):  # whose text names the store, which is not for clients
            event("blobs_unavailable", logging.WARNING, problem=str(error))
            return Refusal("busy", "the store of large files cannot be reached: try again later", {"Retry-After": "5"})
        if is_full(error):
            self.mark_full(error.strerror or "no space left")
        return no_space(error)

    def mark_full(self, problem: str) -> bool:
        """Record that the disk is full; return whether that has released a reserve."""
        with self._lock:
            if self.problem is None:
                event("disk_full", logging.ERROR, problem=problem)
            self.problem = problem
            return self._reserve.release()

    def keep_reserve(self, size: int) -> bool:
        """Keep ``size`` bytes back; return whether the disk is not full, so has them."""
        with self._lock:
            if not self._reserve.hold(size):
                return False
            if self.problem is not None:
                event("disk_has_space_again")
            self.problem = None
            return True


class Reserve:
    """A file that keeps some of the disk back; an earlier server's is deleted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        path.unlink(missing_ok=True)

    def hold(self, size: int) -> bool:
        """Keep at least ``size`` bytes, or nothing; return whether the disk has them."""
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
