"""The number of the machine's cores that have nothing to do."""

import math
import os
import time
from pathlib import Path

_STATISTICS = Path("/proc/stat")  # Linux


class IdleCores:
    """The mean number of idle cores since it was made."""

    def __init__(self) -> None:
        self._began, self._idle = time.monotonic(), _idle_seconds()

    def mean(self) -> float:
        """Return the number; infinity where the system does not tell."""
        idle, seconds = _idle_seconds(), time.monotonic() - self._began
        if idle is None or self._idle is None or seconds <= 0:
            return math.inf
        return (idle - self._idle) / seconds


def _idle_seconds() -> float | None:
    """Return the idle time of all cores together since the start of the machine."""
    try:
        _, _, _, _, idle, *_ = _STATISTICS.read_text(encoding="ascii").split(maxsplit=5)
        return int(idle) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
