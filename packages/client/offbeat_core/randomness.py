"""Random numbers as a function of (seed, purpose, client, visit, draw).

A number does not depend on what was drawn before it, so a client's work comes out the same whether clients are trained
one by one, in batches or in other processes, and whether or not a run was interrupted. **Changing anything in this file
changes the result of every experiment.**

The function is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), which maps a
key of 64 bits and a counter of 128 bits to 128 random bits:

* key: the low and the high word of the seed;
* counter: draw, visit, client, purpose, one word of 32 bits each.

Numbers that are drawn once, before a run (which client holds which examples, how fast a device is), come from
``generator``: numpy's generator over its own Philox, keyed by seed and purpose.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Purpose(IntEnum):
    """The purpose of a random number; values are never reused, only added."""

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
    HOLDOUT = 16
    CLIENT_EVALUATION = 17
    VALIDATION = 18


_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = 0xFFFFFFFF
_WORD = 32
_ROUNDS = 10


def words(
    seed: int, purpose: int, client: ArrayLike = 0, visit: ArrayLike = 0, draw: ArrayLike = 0
) -> NDArray[np.uint64]:
    """Return four random words of 32 bits for each (client, visit, draw).

    Args:
        seed: The run's seed, 0 ≤ seed < 2⁶⁴.
        purpose: A ``Purpose``.
        client: Client numbers, 0 ≤ client < 2³²; broadcast against the next two.
        visit: How many times the client had been given work before.
        draw: Which number of this visit.

    Returns:
        Array ``(4, ...)``, uint64 holding values below 2³².
    """
    # Left in their own shapes as long as the rounds do not mix them, which spares most of the first one.
    counter = (np.atleast_1d(word).astype(np.uint64) for word in (draw, visit, client, purpose))
    return np.stack(philox(seed, *counter))


def philox(seed: int, x0: Any, x1: Any, x2: Any, x3: Any) -> tuple[Any, Any, Any, Any]:
    """Return four random words for a counter of plain numbers or uint64 arrays."""
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


def integer(seed: int, purpose: int, client: int = 0, visit: int = 0, draw: int = 0) -> int:
    """Return one random integer of 63 bits, which may seed another generator."""
    high, low, _, _ = philox(seed, draw, visit, client, purpose)
    return (high << _WORD | low) >> 1


def generator(seed: int, purpose: int) -> np.random.Generator:
    """Return a numpy generator for numbers that are drawn once, before a run."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, purpose], np.uint64)))
