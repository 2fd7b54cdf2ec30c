"""Uniform random numbers and the order of examples.

**Changing anything in this file changes the result of every experiment.**
"""

from collections.abc import Callable
from itertools import islice

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from offbeat_core.randomness import Purpose, philox, words

_FEW = 0.5  # share of the keys below which sorting those alone takes less time than sorting all


def uniform(
    seed: int, purpose: int, client: ArrayLike = 0, visit: ArrayLike = 0, draw: ArrayLike = 0
) -> NDArray[np.float64]:
    """Return a uniform number in [0, 1) for each (client, visit, draw).

    Each has 53 random bits. The arguments are those of ``words``; the shape is theirs broadcast, at least ``(1,)``.
    """
    high, low, _, _ = words(seed, purpose, client, visit, draw)
    return ((high >> 5) * 67108864.0 + (low >> 6)) / 9007199254740992.0


def number(seed: int, purpose: int, client: int = 0, visit: int = 0, draw: int = 0) -> float:
    """Return what ``uniform`` returns for single numbers."""
    high, low, _, _ = philox(seed, draw, visit, client, purpose)
    return ((high >> 5) * 67108864.0 + (low >> 6)) / 9007199254740992.0


class UniformStream:
    """The numbers ``uniform(seed, purpose, draw=0, 1, 2, …)`` in order."""

    _BLOCK = 1024

    def __init__(self, seed: int, purpose: int, position: int = 0) -> None:
        self._seed = seed
        self._purpose = purpose
        self.position = position
        self._block: list[float] = []
        self._block_start = -1

    def next(self) -> float:
        """Return the number at ``position`` and advance by one."""
        block, offset = divmod(self.position, self._BLOCK)
        if block != self._block_start:
            first = block * self._BLOCK
            draws = np.arange(first, first + self._BLOCK)
            # The draw has 32 bits; higher bits go to the visit, which a stream does not use.
            low, high = draws & 0xFFFFFFFF, draws >> 32
            self._block = uniform(self._seed, self._purpose, visit=high, draw=low).tolist()
            self._block_start = block
        self.position += 1
        return self._block[offset]


def example_order(seed: int, client: int, visit: int, examples: int, draws: int) -> torch.Tensor:
    """Return the order, int64 ``(draws,)``, of a client's examples in a visit.

    The client goes through all its examples in random order, then again in a new order. More draws never change the
    first ones, so a visit cut short uses the first examples of the complete visit.
    """
    epochs = -(-draws // examples)
    high, low, _, _ = words(seed, Purpose.MINIBATCHES, client, visit, np.arange(epochs * examples))
    keys = (high << 32 | low).reshape(epochs, examples)
    return torch.from_numpy(smallest_in_rows(keys, draws))


def choose_clients(
    seed: int, version: int, clients: int, number: int, can_evaluate: Callable[[int], bool]
) -> list[int]:
    """Return up to ``number`` random clients that can evaluate a version."""
    order = uniform(seed, Purpose.CLIENT_EVALUATION, np.arange(clients), visit=version).argsort(kind="stable")
    return list(islice(filter(can_evaluate, order.tolist()), number))


def smallest_in_rows(keys: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Return the argsorts of rows of random keys in order, ``count`` in total.

    The keys are ``(rows, n)``; ``count`` is 0, or more than (rows − 1) · n and up to rows · n.
    """
    if not count:
        return np.empty(0, np.int64)
    *complete, last = keys
    rest = count - len(complete) * len(last)
    # If few of the last row are needed, only keys below a bound are sorted; with probability 1 − 10⁻⁹ they suffice.
    share = (rest + 6.0 * rest**0.5 + 16.0) / len(last)
    candidates = np.flatnonzero(last < np.uint64(share * 2.0**64)) if share < _FEW else np.empty(0, np.int64)
    if len(candidates) >= rest:
        end = candidates[last[candidates].argsort(kind="stable")[:rest]]
    else:
        end = last.argsort(kind="stable")[:rest]
    return np.concatenate([*(row.argsort(kind="stable") for row in complete), end])
