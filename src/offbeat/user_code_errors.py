"""One line on an error in the user's own code: a model, a loss, a metric, a file that is imported."""

import sysconfig
import traceback
from pathlib import Path

from offbeat.errors import OffbeatError

_OFFBEAT = Path(__file__).parent
_LIBRARIES = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]


def said(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    # The text of a syntax error names its place too, but without the folder.
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    first_line = next(iter(message.strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def failure(what: str, error: BaseException, *, or_library: bool = False) -> OffbeatError:
    """Return one line: what failed, what it said, and the file and line of the user's if one is known.

    Args:
        what: Such as ``the metric f1 failed``.
        error: With its traceback, of which the user's last line is named: not that of a library which it called.
        or_library: Whether a library's line is better than none, because what failed may itself be installed as one.
    """
    place = _place(error, or_library=or_library)
    return OffbeatError(f"{what}: {said(error)}{f' ({place})' if place else ''}")


def _place(error: BaseException, *, or_library: bool) -> str:
    if isinstance(error, SyntaxError) and not _is_generated(error.filename or "<"):
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not _is_generated(frame.filename) and not Path(frame.filename).is_relative_to(_OFFBEAT)
    ]
    own = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(folder) for folder in _LIBRARIES)]
    found = own or (frames if or_library else [])
    return f"{found[-1].filename}:{found[-1].lineno}" if found else ""


def _is_generated(filename: str) -> bool:
    return filename.startswith("<")  # such as <string>
