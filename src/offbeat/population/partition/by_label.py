"""Partitions by the examples' labels."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.shards import check_clients, fill_empty, integer_sizes, normal_sizes, shards_by_owner

_MAX_ALPHA = 1e9


def dirichlet(labels: NDArray[np.int64], clients: int, alpha: float, seed: int) -> list[NDArray[np.int64]]:
    """Divide each class by proportions from a Dirichlet distribution.

    A small alpha gives clients few labels.

    For each class k, draw p_k ~ Dir_N(alpha) and give client i the share p_k,i of the class's examples, in random
    order (Yurochkin et al., "Bayesian nonparametric federated learning of neural networks", ICML 2019, section 4;
    Li et al., "Federated learning on non-IID data silos", ICDE 2022, section IV-A). Unlike the code of the latter
    paper, this does not draw again until all clients have ten examples, and does not cap clients at n/N examples, since
    both change the distribution. Instead, each client without examples gets one from the client with the most.

    ``alpha`` is the concentration of the distribution, 0 < alpha ≤ 10⁹.
    """
    check_clients(len(labels), clients)
    if not 0 < alpha <= _MAX_ALPHA:
        raise OffbeatError(f"alpha is {alpha}, but must be at most {_MAX_ALPHA:g}, and above 0")
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    owner = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = order[labels[order] == label]
        proportions = random.dirichlet(np.full(clients, alpha))
        sizes = integer_sizes(np.cumsum(proportions) * len(members))
        owner[members] = np.repeat(np.arange(clients), sizes)
    shards = shards_by_owner(owner, clients, random)
    fill_empty(shards)
    return shards


def one_class(labels: NDArray[np.int64], clients: int, seed: int, sigma: float = 0.0) -> list[NDArray[np.int64]]:
    """Give each client examples of one class only.

    The C classes are numbered 0 … C − 1 in the order of their labels; client i holds class ⌊i C / N⌋. So the numbers of
    clients of two classes differ by at most one. The examples of a class are divided evenly among its clients or, with
    a sigma, into normally distributed sizes, see ``normal_sizes``.

    FedLaAvg's experiments with MNIST have N = 1000 and sigma = 1/6: "the number of samples on each client roughly"
    follows "a normal distribution with mean 6 · 10⁴ / N and variance (10⁴ / N)²" (Yan et al., "Distributed Non-Convex
    Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1). Here the mean is that of
    each class, since MNIST's digits are not equally frequent.

    ``sigma`` is the standard deviation of the sizes within a class as a fraction of their mean, 0 ≤ sigma ≤ 10⁶. With 0
    they differ by at most one. An ``OffbeatError`` also if there are fewer clients than classes, or if a class has
    fewer examples than clients.
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


def mixing(labels: NDArray[np.int64], clients: int, mu: float, seed: int) -> list[NDArray[np.int64]]:
    """Mix each client's own class with random examples.

    A fraction 1 − μ of a client's examples is of its own class, and a fraction μ is random.

    This is the mixing rate of Avdyukhin and Kasiviswanathan, "Federated Learning under Arbitrary Communication
    Patterns", ICML 2021, section 3.1: "for each client, (1 − μ) fraction of data is selected from the class
    corresponding to the client, while μ fraction is selected from a random class". So μ = 1 is IID, and with μ = 0 each
    client has its own class only. Where the paper is silent:

    * Each example goes to exactly one client. The examples are divided by ``one_class``; each client puts a fraction μ
      of its examples into a pool and draws as many from the shuffled pool. So sizes do not depend on μ. The expected
      fraction of a client's own class is 1 − μ + μ s, where s is the share of that class in all examples.
    * The paper has N = C = 10. More clients than classes share the classes as in ``one_class``; with fewer, client i
      has the classes c with ⌊c N / C⌋ = i, numbered in the order of their labels from 0.
    * Fractions of an example are rounded so that the running sums of pooled examples are the nearest integers.

    0 ≤ ``mu`` ≤ 1. An ``OffbeatError`` also if a class has fewer examples than clients.
    """
    check_clients(len(labels), clients)
    random = generator(seed, Purpose.PARTITION)
    classes, numbers = np.unique(labels, return_inverse=True)
    own = labels if clients >= len(classes) else numbers * clients // len(classes)
    shards = divide_by_class(own, clients, random)
    pooled = integer_sizes(np.cumsum([len(shard) for shard in shards]) * mu)
    pool = random.permutation(np.concatenate([shard[:count] for shard, count in zip(shards, pooled, strict=True)]))
    drawn = np.split(pool, np.cumsum(pooled)[:-1])
    return [
        random.permutation(np.concatenate([shard[count:], others]))
        for shard, count, others in zip(shards, pooled, drawn, strict=True)
    ]


# Shares are integer multiples of 1 / _UNITS: with sums of floats, a class could run out of examples.
_UNITS = 1_000_000


def by_hour(
    labels: NDArray[np.int64], middle_hours: NDArray[np.float64], alpha: float, seed: int
) -> list[NDArray[np.int64]]:
    """Give each client a share of positive labels by its available hours.

    FedLaAvg's experiments with Sentiment140 "vary the label balance as a function of the time of day" (Yan et al.,
    "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1.3):
    they drop tweets at random until α of those sent in 0:00–1:00 are positive and 1 − α of those sent in 12:00–13:00,
    "and linearly interpolate for other hours of day". So α + (1 − 2α) · min(k, 24 − k) / 12 of those sent in hour k
    are positive, and with α = ½ the hour does not matter. A client is available in the hours in which its user sends
    least. For examples without times:

    * A client's examples count as sent in one hour, opposite the middle of its available time: a client available
      around noon has the share α (its user tweets around midnight), one available around midnight 1 − α. The paper's
      users tweet in many hours, so with the same α their shares are nearer to ½.
    * All clients have the same number of examples, the largest for which both classes suffice. **The other examples are
      not used**; the paper drops tweets too, but its clients differ in size.
    * Positive is the higher of the two labels. Fractions of an example are rounded so that the running sums of positive
      examples are the nearest integers.

    Args:
        labels: With two different values.
        middle_hours: ``(N,)``, the middle of each client's available time, in hours after midnight.
        alpha: The share of positive labels in the hour after midnight, α, 0 ≤ α ≤ 1.
        seed: The run's seed.

    Raises:
        OffbeatError: Also if there are not two labels, or too few examples of one of them.
    """
    clients = len(middle_hours)
    check_clients(len(labels), clients)
    values, examples = np.unique(labels, return_counts=True)
    if len(values) != 2:
        raise OffbeatError(
            f"by_hour balances two labels, but the training examples have {len(values)}: take data with two classes"
        )
    hour = (np.floor(middle_hours).astype(np.int64) + 12) % 24
    share = np.rint(_UNITS * (alpha + (1 - 2 * alpha) * np.minimum(hour, 24 - hour) / 12)).astype(np.int64)
    size = _largest_size(examples.tolist(), int(share.sum()), clients)
    if size == 0:
        raise OffbeatError(
            f"{clients} clients cannot share {examples[0]} examples of class {values[0]} and {examples[1]} of class "
            f"{values[1]} so that the shares follow the hour: ask for fewer clients"
        )
    positive = np.diff((size * np.cumsum(share) + _UNITS // 2) // _UNITS, prepend=0)
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    owner = np.full(len(labels), -1)
    for value, sizes in zip(values, (size - positive, positive), strict=True):
        members = order[labels[order] == value][: sizes.sum()]
        owner[members] = np.repeat(np.arange(clients), sizes)
    return shards_by_owner(owner, clients, random)


def _largest_size(examples: list[int], positive_units: int, clients: int) -> int:
    """Return the largest common size; ``positive_units`` sums the clients' shares."""
    wanted = (clients * _UNITS - positive_units, positive_units)
    return min(available * _UNITS // units for available, units in zip(examples, wanted, strict=True) if units)
