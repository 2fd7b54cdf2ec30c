"""Groups of clients that take turns, for instance by their labels."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.population.availability.protocol import LAST_SECONDS, check_period, period_of


class Alternating:
    """Groups that are available in turn.

    Group g is available while floor(t / period) mod groups = g.

    Args:
        groups: Number of groups, ≥ 2. A group may be empty.
        period_seconds: Length of a turn, at least a millisecond. Turns end after 10¹¹ seconds.
        group: ``(N,)``, the group of each client, 0 … groups − 1.

    Raises:
        OffbeatError: The turns are too short.
    """

    def __init__(self, groups: int, period_seconds: float, group: NDArray[np.integer]) -> None:
        check_period("period_seconds", period_seconds)
        self._groups = groups
        self._period = float(period_seconds)
        self._group: list[int] = group.tolist()

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or when the turn of the client's group begins."""
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
        return min((period_of(seconds, self._period) + 1) * self._period, LAST_SECONDS)


def label_groups(
    shards: Sequence[NDArray[np.int64]], labels: NDArray[np.int64], classes: int, first_labels: int
) -> NDArray[np.int64]:
    """Return each client's group by its most frequent label.

    Group 0 has the clients whose most frequent label is one of the first labels, group 1 the others. Of equally
    frequent labels the lowest counts.

    Where each client holds one digit, these are the groups of FedLaAvg's experiments with MNIST: "the clients holding
    digits 0, 1, …, D − 1 are available for E rounds", then "the remaining clients" for the next E rounds (Yan et al.,
    "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1.3).

    Args:
        shards: For each client the numbers of its examples, at least one.
        labels: ``(n,)``, the examples' labels, 0 … classes − 1.
        classes: Number of labels.
        first_labels: Number of first labels, D, 1 ≤ D < classes.

    Returns:
        ``(N,)``, each client's group.

    Raises:
        OffbeatError: ``first_labels`` is out of range, or one of the groups would be empty.
    """
    if not 1 <= first_labels < classes:
        raise OffbeatError(
            f"first_labels is {first_labels}, but must be at least 1 and below {classes}, the number of classes"
        )
    most_frequent = np.array([np.bincount(labels[shard], minlength=classes).argmax() for shard in shards])
    group = (most_frequent >= first_labels).astype(np.int64)
    if group.min() == group.max():
        which = "every" if group[0] == 0 else "no"
        raise OffbeatError(
            f"{which} client's most frequent label is one of the first {first_labels}, so one group would be empty: "
            'change first_labels, or use a partition with fewer labels per client, such as name = "one_class"'
        )
    return group
