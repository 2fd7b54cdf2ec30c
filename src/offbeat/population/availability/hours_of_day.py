"""Clients that are available in certain hours of every day."""

import math

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.population.availability.periods import LAST_SECONDS, period_of

_HOUR = 3600.0
_HOURS = 24
_ALL = 2**_HOURS - 1


class HoursOfDay:
    """Clients available in certain hours, the same every day.

    Adjacent hours merge, also across midnight.

    Args:
        is_available: bool ``(N, 24)``, whether each client is available in each hour after midnight, at least once. A
            client with all hours is always available; the days of the others end after 10¹¹ seconds.

    Attributes:
        middle_hours: ``(N,)``, the middle of each client's longest interval, in hours after midnight, 0 ≤ middle < 24;
            of equally long intervals, of the one that begins first in the day.

    Raises:
        OffbeatError: A client is never available.
    """

    def __init__(self, is_available: NDArray[np.bool_]) -> None:
        never = ~is_available.any(axis=1)
        if never.any():
            raise OffbeatError(f"client {int(np.argmax(never))} is available in no hour, but needs one")
        # Bit h is hour h.
        self._hours: list[int] = (is_available @ (1 << np.arange(_HOURS))).tolist()
        self.middle_hours = _compute_middles(is_available)

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or the start of the client's next hour."""
        if self._hours[client] == _ALL:
            return seconds
        if seconds >= LAST_SECONDS:
            return math.inf
        current = period_of(seconds, _HOUR)
        wait = _first_bit(self._hours_from(client, current))
        if wait == 0:
            return seconds
        begin = (current + wait) * _HOUR
        return begin if begin < LAST_SECONDS else math.inf

    def next_offline(self, client: int, seconds: float) -> float:
        """Return the end of the last of the client's adjacent hours."""
        if self._hours[client] == _ALL:
            return math.inf
        current = period_of(seconds, _HOUR)
        stay = _first_bit(self._hours_from(client, current) ^ _ALL)
        return min((current + stay) * _HOUR, LAST_SECONDS)

    def _hours_from(self, client: int, current: int) -> int:
        """Return bits; bit j is set if the client is available j hours later."""
        hours, hour = self._hours[client], current % _HOURS
        return (hours >> hour | hours << (_HOURS - hour)) & _ALL


def _first_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _compute_middles(is_available: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the middle of each row's longest run, which may cross midnight, ``(N,)``."""
    continues = np.ones_like(is_available)
    length = np.zeros(is_available.shape, np.int64)  # of the run that starts at each hour
    for ahead in range(_HOURS):
        continues &= np.roll(is_available, -ahead, axis=1)
        length += continues
    return (length.argmax(axis=1) + length.max(axis=1) / 2) % _HOURS
