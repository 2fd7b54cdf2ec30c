"""Everybody holds examples of one class."""

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.partition.normal_sizes import normal_sizes
from offbeat.population.partition.shards import check_clients
from offbeat.randomness import Purpose, generator


def one_class(labels: NDArray[np.int64], clients: int, seed: int, sigma: float = 0.0) -> list[NDArray[np.int64]]:
    """Give each client examples of one class only.

    With the C classes that occur numbered 0 … C − 1 by their labels, client i holds class ⌊i C / N⌋: the first clients
    have the lowest label, and two classes' numbers of clients differ by at most one. A class's examples are divided
    evenly among its clients or, with a sigma, into normally distributed sizes, see ``normal_sizes``.

    FedLaAvg's experiments do this with MNIST, N = 1000 and sigma = 1/6: "the number of samples on each client roughly"
    follows "a normal distribution with mean 6 · 10⁴ / N and variance (10⁴ / N)²" (Yan et al., "Distributed Non-Convex
    Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1). Here the mean is that of
    the class, as MNIST has not as many examples of each digit.

    Args:
        labels: ``(n,)``, the examples' labels.
        clients: How many clients, N.
        seed: The run's seed.
        sigma: The standard deviation of the sizes within a class as a fraction of their mean, 0 ≤ sigma ≤ 10⁶. With 0
            they differ by at most one.

    Returns:
        One int64 array of example numbers a client, in random order.

    Raises:
        OffbeatError: There are no clients or more than examples, fewer clients than classes, a class has fewer examples
            than clients, or sigma is out of range.
    """
    check_clients(len(labels), clients)
    return divide_by_class(labels, clients, generator(seed, Purpose.PARTITION), sigma)


def divide_by_class(
    labels: NDArray[np.int64], clients: int, random: np.random.Generator, sigma: float = 0.0
) -> list[NDArray[np.int64]]:
    """Do what ``one_class`` does, for a number of clients that was checked, with randomness that was begun."""
    classes, examples = np.unique(labels, return_counts=True)
    if clients < len(classes):
        raise OffbeatError(
            f"{clients} clients cannot hold one class each of {len(classes)}: ask for {len(classes)} clients or more"
        )
    sharers = np.bincount(np.arange(clients) * len(classes) // clients)
    order = random.permutation(len(labels))
    parts: list[NDArray[np.int64]] = []
    for label, available, count in zip(classes, examples, sharers, strict=True):
        if available < count:
            raise OffbeatError(
                f"class {label} has {available} examples, but {count} of the {clients} clients are to share them: "
                "ask for fewer clients"
            )
        members = order[labels[order] == label]
        if sigma == 0:
            parts += np.array_split(members, count)
        else:
            parts += np.split(members, np.cumsum(normal_sizes(len(members), count, sigma, random))[:-1])
    return parts
