"""Shards of one class each, mixed with random examples."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.one_class import divide_by_class
from offbeat.population.partition.shards import check_clients, integer_sizes


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

    Args:
        labels: ``(n,)``, the examples' labels.
        clients: Number of clients, N.
        mu: The mixing rate μ, 0 ≤ μ ≤ 1.
        seed: The run's seed.

    Returns:
        For each client its example numbers, int64, in random order.

    Raises:
        OffbeatError: There are fewer than one or more than n clients, a class has fewer examples than clients, or mu is
            out of range.
    """
    check_clients(len(labels), clients)
    if not 0 <= mu <= 1:
        raise OffbeatError(f"mu is {mu}, but must be between 0 and 1")
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
