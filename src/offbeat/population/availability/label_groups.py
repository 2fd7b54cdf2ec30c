"""Two groups of clients, by the labels that they hold."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError


def label_groups(
    shards: Sequence[NDArray[np.int64]], labels: NDArray[np.int64], classes: int, first_labels: int
) -> NDArray[np.int64]:
    """Return which clients hold mostly one of the first labels, group 0, and which do not, group 1.

    A client counts by its most frequent label, of equally frequent ones by the lowest. Where each client holds one
    digit, these are the groups of FedLaAvg's experiments with MNIST: "the clients holding digits 0, 1, …, D − 1 are
    available for E rounds", then "the remaining clients" for the next E rounds (Yan et al., "Distributed Non-Convex
    Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1.3).

    Args:
        shards: For each client the numbers of its examples, one at least.
        labels: ``(n,)``, the examples' labels, 0 … classes − 1.
        classes: How many labels there are.
        first_labels: How many of them are the first, D, 1 ≤ D < classes.

    Returns:
        ``(N,)``, each client's group.

    Raises:
        OffbeatError: ``first_labels`` is out of range, or one of the groups would be empty.
    """
    if not 1 <= first_labels < classes:
        raise OffbeatError(
            f"first_labels is {first_labels}, but must be at least 1 and below {classes}, the number of classes"
        )
    mostly = np.array([np.bincount(labels[shard], minlength=classes).argmax() for shard in shards])
    group = (mostly >= first_labels).astype(np.int64)
    if group.min() == group.max():
        whose = "every" if group[0] == 0 else "no"
        raise OffbeatError(
            f"{whose} client's most frequent label is one of the first {first_labels}, so one group would be empty: "
            'change first_labels, or take a partition with fewer labels a client, such as name = "one_class"'
        )
    return group
