"""The state of the server's disk: whether it is full, and which failures end the server."""

import errno
import logging
import threading
from collections.abc import Callable

from offbeat.service.logs import event
from offbeat.service.refusal import Refusal, no_space
from offbeat.service.store.reserve_file import Reserve

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def is_full(error: OSError) -> bool:
    """Return whether a failure says that the disk, or a quota on it, is full."""
    return error.errno in _FULL


def passes(error: OSError) -> bool:
    """Return whether a failure may pass while the server runs; after any other nobody knows what is on the disk."""
    return error.errno in _FULL | _DESCRIPTORS


class Disk:
    """Decides what follows from a failure of the disk; but for ``refusal``, any thread may call its methods.

    While the disk is full nothing new is taken in. The reserve is released, so that the log can be written to its end
    and a checkpoint can delete what it makes superfluous; once there is room for the reserve again, work resumes.

    Args:
        reserve: Space that is kept back for this.
        failed: Called with a failure that does not pass: the server has to end.

    Attributes:
        problem: Why nothing is taken in; None if the disk is not full.
    """

    def __init__(self, reserve: Reserve, failed: Callable[[BaseException], None]) -> None:
        self.problem: str | None = None
        self._reserve = reserve
        self._failed = failed
        self._lock = threading.Lock()

    def refusal(self, error: OSError) -> Refusal:
        """Return the refusal for a request that failed so; the server ends if the failure does not pass."""
        if is_full(error):
            self.fill(error.strerror or "no space left")
            return no_space(error)
        if passes(error):
            return Refusal("busy", "the server has too many files open: try again in a while", {"Retry-After": "5"})
        self._failed(error)
        return Refusal("stopping", "the server's disk has failed: try again in a while", {"Retry-After": "5"})

    def fill(self, why: str) -> bool:
        """Record that the disk is full; return whether that has released a reserve."""
        with self._lock:
            if self.problem is None:
                event("disk_full", logging.ERROR, problem=why)
            self.problem = why
            return self._reserve.release()

    def keep_reserve(self, size: int) -> bool:
        """Keep so many bytes back; return whether the disk has them, and so is not full any more."""
        with self._lock:
            if not self._reserve.hold(size):
                return False
            if self.problem is not None:
                event("disk_has_space_again")
            self.problem = None
            return True
