"""Who holds which training examples.

Both functions put every example into exactly one client and leave no client without any.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.randomness import Purpose, generator

_MAX_ALPHA = 1e9


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
    _check_clients(len(labels), clients)
    order = generator(seed, Purpose.PARTITION).permutation(len(labels))
    return np.array_split(order, clients)


def dirichlet(labels: NDArray[np.int64], clients: int, alpha: float, seed: int) -> list[NDArray[np.int64]]:
    """Divide each class by proportions from a Dirichlet distribution: the smaller alpha, the fewer labels a client has.

    For each class k, draw p_k ~ Dir_N(alpha) and give client i the share p_k,i of the class's examples, in random
    order (Yurochkin et al., "Bayesian nonparametric federated learning of neural networks", ICML 2019, section 4;
    Li et al., "Federated learning on non-IID data silos", ICDE 2022, section IV-A). Unlike the code of the latter
    paper, this neither draws again until all clients have ten examples nor stops giving to clients that have more than
    n/N, as both change the distribution. Instead, each client that is left with nothing gets one example from the
    client that then has the most.

    Args:
        labels: ``(n,)``, the examples' labels.
        clients: How many clients, N.
        alpha: The concentration of the distribution, 0 < alpha ≤ 10⁹.
        seed: The run's seed.

    Returns:
        One int64 array of example numbers a client, in random order.

    Raises:
        OffbeatError: There are no clients, or more than examples; or alpha is out of range.
    """
    _check_clients(len(labels), clients)
    if not 0 < alpha <= _MAX_ALPHA:
        raise OffbeatError(f"alpha is {alpha}, but must be above 0 and at most {_MAX_ALPHA:g}")
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    owner = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = order[labels[order] == label]
        proportions = random.dirichlet(np.full(clients, alpha))
        ends = np.rint(np.cumsum(proportions) * len(members)).astype(np.int64)
        owner[members] = np.repeat(np.arange(clients), np.diff(ends, prepend=0))
    # Another order than the one the classes were cut in, in which a client's examples would lie class by class.
    order = random.permutation(len(labels))
    by_client = order[np.argsort(owner[order], kind="stable")]
    sizes = np.bincount(owner, minlength=clients)
    parts = np.split(by_client, np.cumsum(sizes)[:-1])
    _fill_empty(parts)
    return parts


def _fill_empty(parts: list[NDArray[np.int64]]) -> None:
    """Give each client without examples the last one of the client that then has the most (of equals, the first)."""
    largest = [(-len(part), client) for client, part in enumerate(parts)]
    heapq.heapify(largest)
    for client, part in enumerate(parts):
        if len(part) == 0:
            size, donor = largest[0]
            parts[client], parts[donor] = parts[donor][-1:], parts[donor][:-1]
            heapq.heapreplace(largest, (size + 1, donor))


def _check_clients(examples: int, clients: int) -> None:
    """Refuse a number of clients that cannot all have an example."""
    if not 1 <= clients <= examples:
        raise OffbeatError(
            f"{clients} clients cannot share {examples} examples: there must be between 1 and {examples} clients"
        )
