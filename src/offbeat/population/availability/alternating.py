"""Groups of clients that take turns."""

import math

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.population.availability.periods import LAST_SECONDS, check_period, period_of


class Alternating:
    """Groups that are available in turn.

    Group g is available while floor(t / period) mod groups = g; a single group is always available.

    Args:
        groups: Number of groups, ≥ 1. A group may be empty.
        period_seconds: Length of a turn, at least a millisecond. Turns end after 10¹¹ seconds.
        group: ``(N,)``, the group of each client, 0 … groups − 1.

    Raises:
        OffbeatError: An argument is out of range.
    """

    def __init__(self, groups: int, period_seconds: float, group: NDArray[np.integer]) -> None:
        if groups < 1:
            raise OffbeatError(f"groups is {groups}, but must be at least 1")
        check_period("period_seconds", period_seconds)
        wrong = (group < 0) | (group >= groups)
        if wrong.any():
            client = int(np.argmax(wrong))
            raise OffbeatError(f"client {client} is in group {group[client]}, but groups are 0 … {groups - 1}")
        self._groups = groups
        self._period = float(period_seconds)
        self._group: list[int] = group.tolist()

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or when the turn of the client's group begins."""
        if self._groups == 1:
            return seconds
        if seconds >= LAST_SECONDS:
            return math.inf
        k = period_of(seconds, self._period)
        turns = (self._group[client] - k) % self._groups
        if turns == 0:
            return seconds
        begin = (k + turns) * self._period
        return begin if begin < LAST_SECONDS else math.inf

    def next_offline(self, client: int, seconds: float) -> float:
        """Return when this turn ends."""
        if self._groups == 1:
            return math.inf
        return min((period_of(seconds, self._period) + 1) * self._period, LAST_SECONDS)
