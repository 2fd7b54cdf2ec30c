"""Everybody holds the same mixture."""

import numpy as np
from numpy.typing import NDArray

from offbeat.population.partition.shards import check_clients
from offbeat.randomness import Purpose, generator


def iid(labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Divide the examples evenly and at random.

    Args:
        labels: ``(n,)``, the examples' labels; only their number matters.
        clients: How many clients, N.
        seed: The run's seed.

    Returns:
        One int64 array of example numbers a client, in random order; their lengths differ by at most one.

    Raises:
        OffbeatError: There are no clients, or more than examples.
    """
    check_clients(len(labels), clients)
    order = generator(seed, Purpose.PARTITION).permutation(len(labels))
    return np.array_split(order, clients)
