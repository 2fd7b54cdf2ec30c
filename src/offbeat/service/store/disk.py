"""The state of the server's disk, and what a failure of it means."""

import errno
import logging
import threading
from collections.abc import Callable

from offbeat.service.descriptors import is_shortage
from offbeat.service.logs import event
from offbeat.service.refusal import Refusal, no_space
from offbeat.service.store.reserve_file import Reserve

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Return whether the disk, or a quota on it, is full."""
    return error.errno in _FULL


def is_temporary(error: OSError) -> bool:
    """Return whether a failure may pass while the server runs.

    After any other failure the disk's content is unknown.
    """
    return is_full(error) or is_shortage(error)


class Disk:
    """The state of the disk, and the handling of its failures.

    Any thread may call all methods but ``refusal``.

    While the disk is full the server takes in nothing new. It releases the reserve, so that the log can be written to
    its end and a checkpoint can delete what it covers. Work resumes once there is room for the reserve again.

    Args:
        reserve: Space that is kept back for a full disk.
        failed: Called with a failure that does not pass: the server has to end.

    Attributes:
        problem: The reason why nothing is taken in; None if the disk is not full.
    """

    def __init__(self, reserve: Reserve, failed: Callable[[BaseException], None]) -> None:
        self.problem: str | None = None
        self._reserve = reserve
        self._failed = failed
        self._lock = threading.Lock()

    def refusal(self, error: OSError) -> Refusal:
        """Return the refusal of a request that met this error.

        Ends the server if the failure does not pass.
        """
        if not is_temporary(error):
            self._failed(error)
            return Refusal("stopping", "the server's disk has failed: try again later", {"Retry-After": "5"})
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
        """Keep ``size`` bytes back; return whether the disk has them.

        If it has them, it is no longer full.
        """
        with self._lock:
            if not self._reserve.hold(size):
                return False
            if self.problem is not None:
                event("disk_has_space_again")
            self.problem = None
            return True
