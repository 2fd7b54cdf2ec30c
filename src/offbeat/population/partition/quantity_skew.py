"""Everybody holds the same mixture, but not as much of it."""

import numpy as np
from numpy.typing import NDArray

from offbeat.population.partition.normal_sizes import normal_sizes
from offbeat.population.partition.shards import check_clients
from offbeat.randomness import Purpose, generator


def quantity_skew(labels: NDArray[np.int64], clients: int, sigma: float, seed: int) -> list[NDArray[np.int64]]:
    """Divide the examples at random into parts of normally distributed sizes, see ``normal_sizes``.

    Args:
        labels: ``(n,)``, the examples' labels; only their number matters.
        clients: How many clients, N.
        sigma: The sizes' standard deviation as a fraction of their mean, 0 ≤ sigma ≤ 10⁶. With 0, sizes differ by at
            most one.
        seed: The run's seed.

    Returns:
        One int64 array of example numbers a client, in random order.

    Raises:
        OffbeatError: There are no clients, or more than examples; or sigma is out of range.
    """
    check_clients(len(labels), clients)
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    sizes = normal_sizes(len(labels), clients, sigma, random)
    return np.split(order, np.cumsum(sizes)[:-1])
