"""Shares of each class from a Dirichlet distribution."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.shards import check_clients, fill_empty, integer_sizes, shards_by_owner

_MAX_ALPHA = 1e9


def dirichlet(labels: NDArray[np.int64], clients: int, alpha: float, seed: int) -> list[NDArray[np.int64]]:
    """Divide each class by proportions from a Dirichlet distribution.

    A small alpha gives clients few labels.

    For each class k, draw p_k ~ Dir_N(alpha) and give client i the share p_k,i of the class's examples, in random
    order (Yurochkin et al., "Bayesian nonparametric federated learning of neural networks", ICML 2019, section 4;
    Li et al., "Federated learning on non-IID data silos", ICDE 2022, section IV-A). Unlike the code of the latter
    paper, this does not draw again until all clients have ten examples, and does not cap clients at n/N examples, since
    both change the distribution. Instead, each client without examples gets one from the client with the most.

    Args:
        labels: ``(n,)``, the examples' labels.
        clients: Number of clients, N.
        alpha: The concentration of the distribution, 0 < alpha ≤ 10⁹.
        seed: The run's seed.

    Returns:
        For each client its example numbers, int64, in random order.

    Raises:
        OffbeatError: There are fewer than one or more than n clients; or alpha is out of range.
    """
    check_clients(len(labels), clients)
    if not 0 < alpha <= _MAX_ALPHA:
        raise OffbeatError(f"alpha is {alpha}, but must be above 0 and at most {_MAX_ALPHA:g}")
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
