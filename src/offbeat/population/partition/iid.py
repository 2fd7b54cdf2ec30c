"""The IID partition."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.shards import check_clients


def iid(labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Divide the examples evenly and at random.

    Args:
        labels: ``(n,)``, the examples' labels; only their number matters.
        clients: Number of clients, N.
        seed: The run's seed.

    Returns:
        For each client its example numbers, int64, in random order; sizes differ by at most one.

    Raises:
        OffbeatError: There are fewer than one or more than n clients.
    """
    check_clients(len(labels), clients)
    order = generator(seed, Purpose.PARTITION).permutation(len(labels))
    return np.array_split(order, clients)
