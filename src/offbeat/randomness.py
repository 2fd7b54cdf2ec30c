"""Offbeat's random numbers, as a function of (seed, purpose, client, visit, draw).

A number does not depend on earlier draws, so a client's results are the same whether clients are trained one by one, in
batches or in other processes, and whether or not a run was interrupted. **Changing anything in this file changes the
result of every experiment.**

The function is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), which maps a
key of 64 bits and a counter of 128 bits to 128 random bits:

* key: the low and the high word of the seed;
* counter: draw, visit, client, purpose, one word of 32 bits each.

Numbers that are drawn once, before a run (partitions, speeds of devices), come from ``generator``: numpy's generator
over its own Philox, keyed by seed and purpose.
"""

from enum import IntEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray


class Purpose(IntEnum):
    """The purposes of random numbers. Values are never reused; add new ones at the end."""

    INITIAL_MODEL = 1
    PARTITION = 2
    DEVICE_SPEED = 3
    BANDWIDTH = 4
    LOSSY_CLIENTS = 5
    LOSS = 6
    SELECTION = 7
    MINIBATCHES = 8
    LAYERS = 9
    AVAILABILITY = 10
    TRACE = 11
    EVALUATION = 12
    OWN_DATA = 13
    COMPRESSION = 14
    AUGMENTATION = 15


_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = 0xFFFFFFFF
_WORD = 32
_ROUNDS = 10

_FEW = 0.5  # share of the keys below which sorting only the candidates is faster


def words(
    seed: int, purpose: int, client: ArrayLike = 0, visit: ArrayLike = 0, draw: ArrayLike = 0
) -> NDArray[np.uint64]:
    """Return four random words of 32 bits for each (client, visit, draw).

    Args:
        seed: The run's seed, 0 ≤ seed < 2⁶⁴.
        purpose: A ``Purpose``.
        client: Client numbers, 0 ≤ client < 2³²; broadcast against the next two.
        visit: Number of the client's earlier visits.
        draw: Index of the number within the visit.

    Returns:
        Array ``(4, ...)``, uint64 holding values below 2³².
    """
    # Not broadcast before the rounds mix the words, which saves most of the first round.
    counter = (np.atleast_1d(word).astype(np.uint64) for word in (draw, visit, client, purpose))
    return np.stack(_philox(seed, *counter))


def _philox(seed: int, x0: Any, x1: Any, x2: Any, x3: Any) -> tuple[Any, Any, Any, Any]:
    """Return the four random words for a counter of Python integers, where numpy is slow, or of uint64 arrays."""
    key_0, key_1 = seed & _LOW, seed >> _WORD
    for _ in range(_ROUNDS):
        product_0 = x0 * _MULTIPLIER_0
        product_1 = x2 * _MULTIPLIER_1
        x0, x1, x2, x3 = (
            (product_1 >> _WORD) ^ x1 ^ key_0,
            product_1 & _LOW,
            (product_0 >> _WORD) ^ x3 ^ key_1,
            product_0 & _LOW,
        )
        key_0 = (key_0 + _WEYL_0) & _LOW
        key_1 = (key_1 + _WEYL_1) & _LOW
    return x0, x1, x2, x3


def uniform(
    seed: int, purpose: int, client: ArrayLike = 0, visit: ArrayLike = 0, draw: ArrayLike = 0
) -> NDArray[np.float64]:
    """Return one uniform number in [0, 1), with 53 random bits, for each (client, visit, draw).

    The arguments are those of ``words``; the shape is theirs broadcast, at least ``(1,)``.
    """
    high, low, _, _ = words(seed, purpose, client, visit, draw)
    return ((high >> 5) * 67108864.0 + (low >> 6)) / 9007199254740992.0


def number(seed: int, purpose: int, client: int = 0, visit: int = 0, draw: int = 0) -> float:
    """Return ``uniform`` of single numbers, as a float."""
    high, low, _, _ = _philox(seed, draw, visit, client, purpose)
    return ((high >> 5) * 67108864.0 + (low >> 6)) / 9007199254740992.0


def integer(seed: int, purpose: int, client: int = 0, visit: int = 0, draw: int = 0) -> int:
    """Return one random integer of 63 bits, for instance as the seed of another generator."""
    high, low, _, _ = _philox(seed, draw, visit, client, purpose)
    return (high << _WORD | low) >> 1


def generator(seed: int, purpose: int) -> np.random.Generator:
    """Return a numpy generator for numbers that are drawn once, before a run."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, purpose], np.uint64)))


class UniformStream:
    """The numbers ``uniform(seed, purpose, draw=0, 1, 2, …)`` one after the other, computed a block at a time."""

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
    """Return the order in which a client uses its examples during one visit.

    The client goes through all its examples in random order, then again in a new order. More draws never change the
    first ones, so a visit cut short uses the first examples of the complete visit.

    Args:
        seed: The run's seed.
        client: The client.
        visit: Number of the client's earlier visits.
        examples: Number of the client's examples, n ≥ 1.
        draws: Number of examples to draw.

    Returns:
        int64 tensor ``(draws,)`` with values in 0 … n − 1.
    """
    epochs = -(-draws // examples)
    high, low, _, _ = words(seed, Purpose.MINIBATCHES, client, visit, np.arange(epochs * examples))
    keys = (high << _WORD | low).reshape(epochs, examples)
    return torch.from_numpy(smallest_in_rows(keys, draws))


def smallest_in_rows(keys: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Return each row's argsort, one row after the other, up to ``count`` indices in total.

    Args:
        keys: ``(rows, n)``, random in 0 … 2⁶⁴ − 1.
        count: Number of indices; 0, or more than (rows − 1) · n and up to rows · n.

    Returns:
        int64 ``(count,)``.
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
