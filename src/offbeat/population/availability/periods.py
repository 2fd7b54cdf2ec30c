"""Numbered periods of equal length, without gaps or overlaps by rounding.

Period k begins at ``k * period + start``, computed like this everywhere: a running sum would drift, and
``floor(seconds / period)`` alone is off by one where the quotient is rounded.
"""

import math

from offbeat_core.errors import OffbeatError

SHORTEST_SECONDS = 1e-3
"""The shortest period, window or gap between windows."""

LAST_SECONDS = 1e11
"""The end of all periods (3,000 years): beyond it, floats are too far apart for the shortest periods."""


def period_of(seconds: float, period: float, start: float = 0.0) -> int:
    """Return the largest k with ``k * period + start`` ≤ seconds < ``LAST_SECONDS``."""
    # With at most 10¹⁴ periods, the rounding error of the quotient is far less than one.
    k = math.floor((seconds - start) / period)
    if k * period + start > seconds:
        return k - 1
    if (k + 1) * period + start <= seconds:
        return k + 1
    return k


def check_period(name: str, seconds: float) -> None:
    """Refuse a period that is not finite or below ``SHORTEST_SECONDS``."""
    if not SHORTEST_SECONDS <= seconds < math.inf:
        raise OffbeatError(f"{name} is {seconds}, but must be finite and at least {SHORTEST_SECONDS}")
