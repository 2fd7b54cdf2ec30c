"""Steps that several partitions share."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError


def check_clients(examples: int, clients: int) -> None:
    """Raise ``OffbeatError`` unless every client can have an example."""
    if not 1 <= clients <= examples:
        raise OffbeatError(
            f"{clients} clients cannot share {examples} examples: there must be between 1 and {examples} clients"
        )


def shards_by_owner(owner: NDArray[np.int64], clients: int, random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return each client's examples, shuffled; the owner of an unused one is -1."""
    # A permutation of all examples: the order in which they were divided may be class by class.
    order = random.permutation(len(owner))
    order = order[owner[order] >= 0]
    by_client = order[np.argsort(owner[order], kind="stable")]
    sizes = np.bincount(owner[order], minlength=clients)
    return np.split(by_client, np.cumsum(sizes)[:-1])


def integer_sizes(ends: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return integer sizes whose running sums are the nearest to ``ends``, ``(N,)``."""
    return np.diff(np.rint(ends).astype(np.int64), prepend=0)


def fill_empty(shards: list[NDArray[np.int64]]) -> None:
    """Move an example from the largest shard to each empty one, in place.

    The largest shard is determined for each move; of equally large ones it is the first.
    """
    largest = [(-len(shard), client) for client, shard in enumerate(shards)]
    heapq.heapify(largest)
    for client, shard in enumerate(shards):
        if len(shard) == 0:
            size, donor = largest[0]
            shards[client], shards[donor] = shards[donor][-1:], shards[donor][:-1]
            heapq.heapreplace(largest, (size + 1, donor))
