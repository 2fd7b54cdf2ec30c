"""Shards of one class each."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.normal_sizes import normal_sizes
from offbeat.population.partition.shards import check_clients


def one_class(labels: NDArray[np.int64], clients: int, seed: int, sigma: float = 0.0) -> list[NDArray[np.int64]]:
    """Give each client examples of one class only.

    The C classes are numbered 0 … C − 1 in the order of their labels; client i holds class ⌊i C / N⌋. So the numbers of
    clients of two classes differ by at most one. The examples of a class are divided evenly among its clients or, with
    a sigma, into normally distributed sizes, see ``normal_sizes``.

    FedLaAvg's experiments with MNIST have N = 1000 and sigma = 1/6: "the number of samples on each client roughly"
    follows "a normal distribution with mean 6 · 10⁴ / N and variance (10⁴ / N)²" (Yan et al., "Distributed Non-Convex
    Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1). Here the mean is that of
    each class, since MNIST's digits are not equally frequent.

    Args:
        labels: ``(n,)``, the examples' labels.
        clients: Number of clients, N.
        seed: The run's seed.
        sigma: The standard deviation of the sizes within a class as a fraction of their mean, 0 ≤ sigma ≤ 10⁶. With 0
            they differ by at most one.

    Returns:
        For each client its example numbers, int64, in random order.

    Raises:
        OffbeatError: There are fewer than one or more than n clients, or fewer than classes; a class has fewer examples
            than clients; or sigma is out of range.
    """
    check_clients(len(labels), clients)
    return divide_by_class(labels, clients, generator(seed, Purpose.PARTITION), sigma)


def divide_by_class(
    labels: NDArray[np.int64], clients: int, random: np.random.Generator, sigma: float = 0.0
) -> list[NDArray[np.int64]]:
    """Divide the examples like ``one_class``, without checking ``clients`` ≤ n."""
    classes, examples = np.unique(labels, return_counts=True)
    if clients < len(classes):
        raise OffbeatError(
            f"{clients} clients cannot hold one class each of {len(classes)}: ask for {len(classes)} clients or more"
        )
    sharers = np.bincount(np.arange(clients) * len(classes) // clients)
    order = random.permutation(len(labels))
    shards: list[NDArray[np.int64]] = []
    for label, available, count in zip(classes, examples, sharers, strict=True):
        if available < count:
            raise OffbeatError(
                f"class {label} has {available} examples, but {count} of the {clients} clients are to share them: "
                "ask for fewer clients"
            )
        members = order[labels[order] == label]
        if sigma == 0:
            shards += np.array_split(members, count)
        else:
            shards += np.split(members, np.cumsum(normal_sizes(len(members), count, sigma, random))[:-1])
    return shards
