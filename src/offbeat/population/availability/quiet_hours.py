"""Clients available once a day, like phones that are idle and charging.

Most phones are idle at night, whose hours differ between time zones (Bonawitz et al., "Towards federated learning at
scale: system design", MLSys 2019, section 9).
"""

import math

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.availability.periods import LAST_SECONDS, SHORTEST_SECONDS, check_period, period_of
from offbeat.uniform_numbers import uniform

_HOUR = 3600.0


class QuietHours:
    """Each client is available in one daily window.

    A window may cross midnight; the window that began on the day before the run may still be open at 0.

    Args:
        start_seconds: ``(N,)``, start of each client's window, in seconds after midnight, modulo a day.
        hours: Length of the window, at least a millisecond and at most a day, which means always. Gaps shorter than a
            millisecond are ignored.
        day_seconds: Length of a day. Days end after 10¹¹ seconds.

    Attributes:
        middle_hours: ``(N,)``, the middle of each client's window, in hours after midnight, within the day.

    Raises:
        OffbeatError: An argument is out of range.
    """

    def __init__(self, start_seconds: NDArray[np.float64], hours: float, day_seconds: float = 86_400.0) -> None:
        check_period("day_seconds", day_seconds)
        open_seconds = hours * _HOUR
        if not SHORTEST_SECONDS <= open_seconds <= day_seconds:
            raise OffbeatError(
                f"hours is {hours}, but must be at least a millisecond and at most a day, {day_seconds / _HOUR:g} hours"
            )
        wrong = ~(np.isfinite(start_seconds) & (start_seconds >= 0))
        if wrong.any():
            client = int(np.argmax(wrong))
            raise OffbeatError(
                f"client {client} starts at {start_seconds[client]} seconds, but must start at 0 or later"
            )
        starts = np.mod(start_seconds, day_seconds)
        self._always = day_seconds - open_seconds < SHORTEST_SECONDS
        self._day = float(day_seconds)
        self.middle_hours = np.mod(starts + open_seconds / 2, day_seconds) / _HOUR
        self._start: list[float] = starts.tolist()
        self._end: list[float] = (starts + open_seconds).tolist()

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or when the client's next window opens."""
        if self._always:
            return seconds
        if seconds >= LAST_SECONDS:
            return math.inf
        start = self._start[client]
        day = period_of(seconds, self._day, start)
        if seconds < day * self._day + self._end[client]:
            return seconds
        opens = (day + 1) * self._day + start
        return opens if opens < LAST_SECONDS else math.inf

    def next_offline(self, client: int, seconds: float) -> float:
        """Return when the client's window closes."""
        if self._always:
            return math.inf
        day = period_of(seconds, self._day, self._start[client])
        return min(day * self._day + self._end[client], LAST_SECONDS)


def quiet_starts(clients: int, first_hour: float, spread_hours: float, seed: int) -> NDArray[np.float64]:
    """Draw each client's start, ``(N,)``, in seconds after the first midnight.

    Starts are uniform in [first_hour, first_hour + spread_hours), possibly on the next day; both are finite and ≥ 0.
    """
    for name, hours in (("first_hour", first_hour), ("spread_hours", spread_hours)):
        if not 0 <= hours < math.inf:
            raise OffbeatError(f"{name} is {hours}, but must be finite and at least 0")
    return (first_hour + spread_hours * uniform(seed, Purpose.AVAILABILITY, np.arange(clients))) * _HOUR
