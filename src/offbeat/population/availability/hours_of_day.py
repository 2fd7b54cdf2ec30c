"""Clients that are there in certain hours of every day."""

import math

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.availability.periods import LAST_SECONDS, period_of

_HOUR = 3600.0
_HOURS = 24
_ALL = 2**_HOURS - 1


class HoursOfDay:
    """Each client is there in hours of its own, the same every day; adjacent hours merge, past midnight too.

    Args:
        there: bool ``(N, 24)``, whether each client is there in each hour after midnight, in one at least. Who is there
            in all of them is always there; the others' days end after 10¹¹ seconds.

    Attributes:
        middle_hours: ``(N,)``, the middle of each client's longest stay, in hours after midnight, 0 ≤ middle < 24; of
            equally long ones, of the one that begins first in the day.

    Raises:
        OffbeatError: A client is never there.
    """

    def __init__(self, there: NDArray[np.bool_]) -> None:
        never = ~there.any(axis=1)
        if never.any():
            raise OffbeatError(f"client {int(np.argmax(never))} has no hour in which it is there, but needs one")
        # Bit h is hour h.
        self._hours: list[int] = (there @ (1 << np.arange(_HOURS))).tolist()
        self.middle_hours = _middles(there)

    def next_there(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or when the client's next hour begins."""
        if self._hours[client] == _ALL:
            return seconds
        if seconds >= LAST_SECONDS:
            return math.inf
        current = period_of(seconds, _HOUR)
        wait = _first_bit(self._from(client, current))
        if wait == 0:
            return seconds
        begin = (current + wait) * _HOUR
        return begin if begin < LAST_SECONDS else math.inf

    def next_away(self, client: int, seconds: float) -> float:
        """Return when the last of the client's adjacent hours ends."""
        if self._hours[client] == _ALL:
            return math.inf
        current = period_of(seconds, _HOUR)
        stay = _first_bit(self._from(client, current) ^ _ALL)
        return min((current + stay) * _HOUR, LAST_SECONDS)

    def _from(self, client: int, current: int) -> int:
        """Return whose bit j says whether the client is there j hours after the current one."""
        hours, hour = self._hours[client], current % _HOURS
        return (hours >> hour | hours << (_HOURS - hour)) & _ALL


def _first_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _middles(there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the middle of each row's longest run, around midnight, ``(N,)``."""
    still = np.ones_like(there)
    length = np.zeros(there.shape, np.int64)  # of the run from each hour on
    for ahead in range(_HOURS):
        still &= np.roll(there, -ahead, axis=1)
        length += still
    return (length.argmax(axis=1) + length.max(axis=1) / 2) % _HOURS
