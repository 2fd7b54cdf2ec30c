"""Limits of open files and of connections."""

import errno
import sys

from offbeat.errors import OffbeatError

_MAX_CONNECTIONS = 4000
_LARGEST_LIMIT = 2**16  # a larger one slows down the start of other programs
_RESERVE = 96  # descriptors for the database, segments, checkpoints and the threads that write to the disk
_MIN_CONNECTIONS = 16
_FILES_PER_CONNECTION = 2  # the connection itself, and the update or the model that it transfers


def raise_limit() -> int:
    """Return the soft limit of open files, raised as far as the hard one allows."""
    if sys.platform == "win32":
        return _LARGEST_LIMIT
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LARGEST_LIMIT if hard == resource.RLIM_INFINITY else min(hard, _LARGEST_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS has another, lower limit
            return soft
        return wanted
    return _LARGEST_LIMIT if soft == resource.RLIM_INFINITY else soft


def max_connections(limit: int) -> int:
    """Return how many connections a server may accept that may open ``limit`` files.

    Raises:
        OffbeatError: The limit is too low for a server.
    """
    connections = (limit - _RESERVE) // _FILES_PER_CONNECTION
    if connections < _MIN_CONNECTIONS:
        raise OffbeatError(
            f"this process may have {limit} files open, too few for a server: run `ulimit -n 1024` first"
        )
    return min(connections, _MAX_CONNECTIONS)


def is_shortage(error: OSError) -> bool:
    """Return whether the process or the machine has too many open files, which passes."""
    return error.errno in (errno.EMFILE, errno.ENFILE)
