"""Clients that are available in certain hours of every day."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.availability.protocol import LAST_SECONDS, SHORTEST_SECONDS, period_of
from offbeat.population.csv_columns import ColumnType, check_numbers, check_rows, read_columns
from offbeat.uniform_numbers import uniform

_HOUR = 3600.0
_DAY = 86_400.0


class QuietHours:
    """Clients available in one daily window each, like phones that are charging.

    Most phones are idle at night, whose hours differ between time zones (Bonawitz et al., "Towards federated learning
    at scale: system design", MLSys 2019, section 9).

    A window may cross midnight; the window that began on the day before the run may still be open at 0.

    Args:
        start_seconds: ``(N,)``, start of each client's window ≥ 0, in seconds after midnight, modulo a day. Days end
            after 10¹¹ seconds.
        hours: Length of the window, at least a millisecond and at most a day, which means always. Gaps shorter than a
            millisecond are ignored.

    Attributes:
        middle_hours: ``(N,)``, the middle of each client's window, in hours after midnight, within the day.

    Raises:
        OffbeatError: The window is shorter than a millisecond.
    """

    def __init__(self, start_seconds: NDArray[np.float64], hours: float) -> None:
        open_seconds = hours * _HOUR
        if open_seconds < SHORTEST_SECONDS:
            raise OffbeatError(f"hours is {hours}, but must be at least a millisecond")
        starts = np.mod(start_seconds, _DAY)
        self._always = _DAY - open_seconds < SHORTEST_SECONDS
        self.middle_hours = np.mod(starts + open_seconds / 2, _DAY) / _HOUR
        self._start: list[float] = starts.tolist()
        self._end: list[float] = (starts + open_seconds).tolist()

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or when the client's next window opens."""
        if self._always:
            return seconds
        if seconds >= LAST_SECONDS:
            return math.inf
        start = self._start[client]
        day = period_of(seconds, _DAY, start)
        if seconds < day * _DAY + self._end[client]:
            return seconds
        opens = (day + 1) * _DAY + start
        return opens if opens < LAST_SECONDS else math.inf

    def next_offline(self, client: int, seconds: float) -> float:
        """Return when the client's window closes."""
        if self._always:
            return math.inf
        day = period_of(seconds, _DAY, self._start[client])
        return min(day * _DAY + self._end[client], LAST_SECONDS)


def quiet_starts(clients: int, first_hour: float, spread_hours: float, seed: int) -> NDArray[np.float64]:
    """Draw each client's start, ``(N,)``, in seconds after the first midnight.

    Starts are uniform in [first_hour, first_hour + spread_hours), possibly on the next day; both are finite and ≥ 0.
    """
    return (first_hour + spread_hours * uniform(seed, Purpose.AVAILABILITY, np.arange(clients))) * _HOUR


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
    """

    def __init__(self, is_available: NDArray[np.bool_]) -> None:
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


_COLUMNS: dict[str, ColumnType] = {"client": "int64", "hour": "int64", "count": "float64"}


def quietest_hours(path: str | Path, clients: int, hours: int) -> NDArray[np.bool_]:
    """Return each client's hours with the lowest counts (``client,hour,count``).

    In FedLaAvg's experiments with Sentiment140, each client is available "for eight hours each day, during which the
    client sends the least number of tweets" (Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup
    under Intermittent Client Availability", section 6.1.3). The paper does not say whether these hours are adjacent;
    here they need not be. Of equal counts, the earlier hours after midnight are taken.

    Args:
        path: A CSV file with these columns. Clients are numbered from 0, and hour 7 is 7:00 to 8:00. Rows of the same
            client and hour add up; an hour without a row has count 0.
        clients: Number of clients, N.
        hours: Number of hours to take, 1 … 24.

    Returns:
        bool ``(N, 24)``, ``hours`` of them true in each row.

    Raises:
        OffbeatError: The file cannot be read, a row is wrong, or a client has no row; the message names the file and
            the row or the client.
    """
    path = Path(path)
    columns = read_columns(path, _COLUMNS)
    client, hour, count = columns["client"], columns["hour"], columns["count"]
    check_numbers(path, "client", client, clients, f"{clients} clients")
    check_numbers(path, "hour", hour, _HOURS, "hours of a day")
    check_rows(
        path,
        ~(np.isfinite(count) & (count >= 0)),
        lambda i: f"count is {count[i]}, but must be finite and at least 0",
    )
    unknown = np.bincount(client, minlength=clients) == 0
    if unknown.any():
        raise OffbeatError(f"{path} has no row on client {int(np.argmax(unknown))}: give each client's hourly counts")
    counts = np.zeros((clients, _HOURS))
    np.add.at(counts, (client, hour), count)
    is_quiet = np.zeros((clients, _HOURS), np.bool_)
    # A stable sort keeps equal counts in the order of the hours.
    np.put_along_axis(is_quiet, np.argsort(counts, axis=1, kind="stable")[:, :hours], True, axis=1)
    return is_quiet
