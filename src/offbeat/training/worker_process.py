"""Worker processes: messages, death, and how they begin."""

import ctypes
import signal
from contextlib import suppress
from typing import Any

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGEST_BLOCK = 32 * 2**20  # the most that all versions of glibc accept
_MAX_KEPT = 2**30


class WorkerProcess:
    """A worker process as its parent sees it; the parent starts the process first."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection  # a Connection, or on Windows a PipeConnection

    def send(self, message: Any) -> None:
        """Send a message; if the worker has died, the next ``receive`` returns None."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Any:
        """Wait for the next message; return None if the worker has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None


def begin_work() -> None:
    """Set up this process as a worker of one thread, whose parent ends it.

    Ctrl-C goes to all processes of a terminal; here it is ignored.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def keep_freed_memory() -> None:
    """Let this process reuse freed memory instead of returning it to the system.

    At most a gigabyte is kept, and blocks of more than 32 MiB are returned as before. Each step of training frees
    the memory that the next one needs. The system would clear each page in between, which takes up to a fifth of a
    small convolutional network's step. Results do not change. Only glibc, the C library of most Linux systems, has
    these settings.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _MAX_KEPT)
