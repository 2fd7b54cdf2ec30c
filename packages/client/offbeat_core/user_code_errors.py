"""Errors in users' code, such as a model, a loss or a metric, as one line."""

import sysconfig
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from offbeat_core.errors import OffbeatError

_OWN_PACKAGES = ("offbeat", "offbeat_client", "offbeat_core", "offbeat_private")
_LIBRARIES = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]


@contextmanager
def user_code(what: str) -> Generator[None]:
    """Raise errors inside as ``failure``; an ``OffbeatError`` stays as it is."""
    try:
        yield
    except OffbeatError:
        raise
    except Exception as error:
        raise failure(what, error) from error


def error_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    # The text of a syntax error names its place too, but without the folder.
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    first_line = next(iter(message.strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def failure(what: str, error: BaseException, *, or_library: bool = False) -> OffbeatError:
    """Return a one-line error: ``what``, the original error, and its place.

    The place is the user's last line in the traceback, not that of a library below it. If there is none of the user's,
    a library's is named with ``or_library``: set it where the failed code may be an installed one.
    """
    place = _place(error, or_library=or_library)
    return OffbeatError(f"{what}: {error_line(error)}{f' ({place})' if place else ''}")


def _place(error: BaseException, *, or_library: bool) -> str:
    if isinstance(error, SyntaxError) and not _is_generated(error.filename or "<"):
        return f"{error.filename}:{error.lineno}"
    places = [
        (file, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _is_generated(file := _file(frame))
        and str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _OWN_PACKAGES
    ]
    users = [place for place in places if not any(Path(place[0]).is_relative_to(folder) for folder in _LIBRARIES)]
    found = users or (places if or_library else [])
    return f"{found[-1][0]}:{found[-1][1]}" if found else ""


def _file(frame: FrameType) -> str:
    file = frame.f_code.co_filename
    # Code that was sent to another process by cloudpickle 3.1.3; its module's globals still name the file.
    return str(frame.f_globals.get("__file__", file)) if file == "<dynamic-code>" else file


def _is_generated(filename: str) -> bool:
    return filename.startswith("<")  # such as <string>
