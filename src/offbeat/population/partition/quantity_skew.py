"""IID shards of different sizes."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.normal_sizes import normal_sizes
from offbeat.population.partition.shards import check_clients


def quantity_skew(labels: NDArray[np.int64], clients: int, sigma: float, seed: int) -> list[NDArray[np.int64]]:
    """Divide the examples at random into shards of ``normal_sizes``.

    Args:
        labels: ``(n,)``, the examples' labels; only their number matters.
        clients: Number of clients, N.
        sigma: The sizes' standard deviation as a fraction of their mean, 0 ≤ sigma ≤ 10⁶. With 0, sizes differ by at
            most one.
        seed: The run's seed.

    Returns:
        For each client its example numbers, int64, in random order.

    Raises:
        OffbeatError: There are fewer than one or more than n clients; or sigma is out of range.
    """
    check_clients(len(labels), clients)
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    sizes = normal_sizes(len(labels), clients, sigma, random)
    return np.split(order, np.cumsum(sizes)[:-1])
