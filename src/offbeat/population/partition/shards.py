"""What several partitions need."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError


def check_clients(examples: int, clients: int) -> None:
    """Refuse a number of clients that cannot all have an example."""
    if not 1 <= clients <= examples:
        raise OffbeatError(
            f"{clients} clients cannot share {examples} examples: there must be between 1 and {examples} clients"
        )


def by_owner(owner: NDArray[np.int64], clients: int, random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return each client's examples in random order.

    Args:
        owner: ``(n,)``, the client that holds each example, -1 for nobody.
        clients: How many clients, N.
        random: Where the order comes from.
    """
    # A permutation of all examples: one in which they were dealt out could have a client's examples class by class.
    order = random.permutation(len(owner))
    order = order[owner[order] >= 0]
    by_client = order[np.argsort(owner[order], kind="stable")]
    sizes = np.bincount(owner[order], minlength=clients)
    return np.split(by_client, np.cumsum(sizes)[:-1])


def whole_sizes(ends: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return sizes in whole numbers whose running sums are the nearest to ``ends``, ``(N,)``, so nobody is favoured."""
    return np.diff(np.rint(ends).astype(np.int64), prepend=0)


def fill_empty(parts: list[NDArray[np.int64]]) -> None:
    """Give each client without examples the last one of the client that then has the most (of equals, the first)."""
    largest = [(-len(part), client) for client, part in enumerate(parts)]
    heapq.heapify(largest)
    for client, part in enumerate(parts):
        if len(part) == 0:
            size, donor = largest[0]
            parts[client], parts[donor] = parts[donor][-1:], parts[donor][:-1]
            heapq.heapreplace(largest, (size + 1, donor))
