"""One line about an error in the user's code: a model, a loss, a metric, an imported file."""

import sysconfig
import traceback
from pathlib import Path

from offbeat_client.errors import OffbeatError

_OWN_PACKAGES = ("offbeat", "offbeat_client")
_LIBRARIES = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]


def said(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    # The text of a syntax error names its place too, but without the folder.
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    first_line = next(iter(message.strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def failure(what: str, error: BaseException, *, or_library: bool = False) -> OffbeatError:
    """Return an error of one line: what failed, why, and the user's file and line if known.

    Args:
        what: Such as ``the metric f1 failed``.
        error: With its traceback, of which the user's last line is named, not that of a library which it called.
        or_library: Whether a library's line is better than none, because the failed code may itself be installed.
    """
    place = _place(error, or_library=or_library)
    return OffbeatError(f"{what}: {said(error)}{f' ({place})' if place else ''}")


def _place(error: BaseException, *, or_library: bool) -> str:
    if isinstance(error, SyntaxError) and not _is_generated(error.filename or "<"):
        return f"{error.filename}:{error.lineno}"
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _is_generated(frame.f_code.co_filename)
        and str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _OWN_PACKAGES
    ]
    users = [place for place in places if not any(Path(place[0]).is_relative_to(folder) for folder in _LIBRARIES)]
    found = users or (places if or_library else [])
    return f"{found[-1][0]}:{found[-1][1]}" if found else ""


def _is_generated(filename: str) -> bool:
    return filename.startswith("<")  # such as <string>
