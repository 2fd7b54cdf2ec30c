"""Everybody holds a class of their own, mixed with the others'."""

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.partition.one_class import divide_by_class
from offbeat.population.partition.shards import check_clients, whole_sizes
from offbeat.randomness import Purpose, generator


def mixing(labels: NDArray[np.int64], clients: int, mu: float, seed: int) -> list[NDArray[np.int64]]:
    """Give each client a fraction 1 − μ of examples of its own class and a fraction μ of random ones.

    This is the mixing rate of Avdyukhin and Kasiviswanathan, "Federated Learning under Arbitrary Communication
    Patterns", ICML 2021, section 3.1: "for each client, (1 − μ) fraction of data is selected from the class
    corresponding to the client, while μ fraction is selected from a random class". So μ = 1 is IID, and μ = 0 leaves
    each client with its own class. What the paper leaves open is done so:

    * Each example goes to exactly one client. The examples are divided as ``one_class`` does; each client puts a
      fraction μ of them into a pool and gets as many back out of the shuffled pool. So a client's size does not depend
      on μ, sizes are equal where classes are, and a "random class" may be its own and comes as often as it does in
      the data: a client has an expected fraction 1 − μ + μ s of its own class, where s is that class's share of all
      examples.
    * The paper has N = C = 10. With more clients than classes, they share the classes as in ``one_class``; with
      fewer, client i has the classes c with ⌊c N / C⌋ = i, numbered by their labels from 0.
    * Fractions of an example are rounded so that the first clients' pooled examples always add up to the nearest whole
      number.

    Args:
        labels: ``(n,)``, the examples' labels.
        clients: How many clients, N.
        mu: The mixing rate μ, 0 ≤ μ ≤ 1.
        seed: The run's seed.

    Returns:
        One int64 array of example numbers a client, in random order.

    Raises:
        OffbeatError: There are no clients or more than examples, a class has fewer examples than clients, or mu is
            out of range.
    """
    check_clients(len(labels), clients)
    if not 0 <= mu <= 1:
        raise OffbeatError(f"mu is {mu}, but must be between 0 and 1")
    random = generator(seed, Purpose.PARTITION)
    classes, numbers = np.unique(labels, return_inverse=True)
    own = labels if clients >= len(classes) else numbers * clients // len(classes)
    parts = divide_by_class(own, clients, random)
    pooled = whole_sizes(np.cumsum([len(part) for part in parts]) * mu)
    pool = random.permutation(np.concatenate([part[:count] for part, count in zip(parts, pooled, strict=True)]))
    drawn = np.split(pool, np.cumsum(pooled)[:-1])
    return [
        random.permutation(np.concatenate([part[count:], others]))
        for part, count, others in zip(parts, pooled, drawn, strict=True)
    ]
