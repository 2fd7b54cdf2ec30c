"""Reuse of freed memory within a process."""

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGEST_BLOCK = 32 * 2**20  # the most that all versions of glibc accept
_MAX_KEPT = 2**30


def keep_freed_memory() -> None:
    """Let this process reuse freed memory instead of returning it to the system.

    At most a gigabyte is kept, and blocks of more than 32 MiB are returned as before. A step of training frees all that
    the next one needs, but the system clears each page before it gives it out again, which takes up to a fifth of a
    small convolutional network's step. Results do not change. Only glibc, the C library of most Linux systems, has
    these settings.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _MAX_KEPT)
