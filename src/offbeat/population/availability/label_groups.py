"""Two groups of clients by their most frequent labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError


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
