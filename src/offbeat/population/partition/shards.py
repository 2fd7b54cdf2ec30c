"""Partitions that look at neither labels nor users, and steps that all share."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.uniform_numbers import uniform


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


_MAX_SIGMA = 1e6


def normal_sizes(examples: int, clients: int, sigma: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of examples of each client.

    The sizes are drawn with mean n/N and standard deviation sigma · n/N. All are shifted by the same amount, so that
    they add up to n, and those below 1 become 1; with a large sigma this makes the spread smaller than sigma.
    FedLaAvg's experiments with MNIST have sigma = 1/6 (Yan et al., "Distributed Non-Convex Optimization with Sublinear
    Speedup under Intermittent Client Availability", section 6.1). With sigma = 0, sizes differ by at most one.

    Returns:
        int64 ``(N,)``, each at least 1; they add up to n.

    Raises:
        OffbeatError: sigma is above 10⁶.
    """
    if sigma > _MAX_SIGMA:
        raise OffbeatError(f"sigma is {sigma}, but must be at most {_MAX_SIGMA:g}")
    # abs, because numpy refuses −0.0.
    wanted = random.normal(0.0, abs(sigma) * examples / clients, clients)
    above_one = _shift(wanted, examples - clients)
    return 1 + integer_sizes(np.cumsum(above_one))


def _shift(amounts: NDArray[np.float64], total: int) -> NDArray[np.float64]:
    """Return max(0, amounts − s), with s such that the sum is ``total`` ≥ 0."""
    largest_first = np.sort(amounts)[::-1]
    # The s for which only the k largest amounts stay above 0, for k = 1, 2, …; the last consistent one is right.
    shifts = (np.cumsum(largest_first) - total) / np.arange(1, len(amounts) + 1)
    last = np.flatnonzero(largest_first >= shifts)[-1]
    return np.maximum(0, amounts - shifts[last])


def iid(labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Divide the examples evenly and at random; sizes differ by at most one."""
    check_clients(len(labels), clients)
    order = generator(seed, Purpose.PARTITION).permutation(len(labels))
    return np.array_split(order, clients)


def quantity_skew(labels: NDArray[np.int64], clients: int, sigma: float, seed: int) -> list[NDArray[np.int64]]:
    """Divide the examples at random into shards of ``normal_sizes``.

    ``sigma`` is the sizes' standard deviation as a fraction of their mean, 0 ≤ sigma ≤ 10⁶.
    """
    check_clients(len(labels), clients)
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    sizes = normal_sizes(len(labels), clients, sigma, random)
    return np.split(order, np.cumsum(sizes)[:-1])


Shards = list[NDArray[np.int64]]


def hold_out(shards: Shards, share: float, seed: int) -> tuple[Shards, Shards]:
    """Divide each client's shard at random into a part to train on, and the rest.

    Of n examples a client holds out ``share`` · n, rounded, and keeps at least one. Both parts have the shard's order.
    """
    kept: Shards = []
    held_out: Shards = []
    for client, shard in enumerate(shards):
        number = min(round(share * len(shard)), max(len(shard) - 1, 0))
        is_held_out = np.zeros(len(shard), dtype=np.bool_)
        if number:
            keys = uniform(seed, Purpose.HOLDOUT, client, draw=np.arange(len(shard)))
            is_held_out[keys.argsort(kind="stable")[:number]] = True
        kept.append(shard[~is_held_out])
        held_out.append(shard[is_held_out])
    return kept, held_out
