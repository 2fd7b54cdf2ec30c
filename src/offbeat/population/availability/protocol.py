"""The protocol of availability, its simplest kind, and numbered periods."""

import math
from typing import Protocol

from offbeat_core.errors import OffbeatError


class Availability(Protocol):
    """The times at which each client is available.

    Times are virtual seconds, finite and at least 0. Intervals are half-open: a client is available at the start of an
    interval and offline at its end. A run calls both methods many times, so they take and return plain numbers and look
    ahead no further than necessary.
    """

    def next_available(self, client: int, seconds: float) -> float:
        """Return the earliest time ≥ seconds at which the client is available, or inf."""
        ...

    def next_offline(self, client: int, seconds: float) -> float:
        """Return the earliest time > seconds at which the client is offline, or inf.

        The client must be available at ``seconds``.
        """
        ...


class Always:
    """Every client is always available."""

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds``."""
        return seconds

    def next_offline(self, client: int, seconds: float) -> float:
        """Return ``math.inf``."""
        return math.inf


SHORTEST_SECONDS = 1e-3
"""The shortest period, window or gap between windows."""

LAST_SECONDS = 1e11
"""The end of all periods (3,000 years): beyond it, floats are too far apart for the shortest periods."""


def period_of(seconds: float, period: float, start: float = 0.0) -> int:
    """Return the largest k with ``k * period + start`` ≤ seconds < ``LAST_SECONDS``.

    Period k begins at ``k * period + start``, computed like this everywhere, so that periods have neither gaps nor
    overlaps: a running sum would drift, and ``floor(seconds / period)`` alone is off by one where the quotient is
    rounded.
    """
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
