"""Updates as whole numbers: divided, clipped, scaled, and rounded at random.

A release is a sum of such numbers with whole noise: on a server with a helper, on one without, and in a simulation.
"""

import math

import numpy as np
from numpy.typing import NDArray
from offbeat_private.masks.keystream import keystream_chunks

_PIECE = 1 << 15  # numbers at a time
_U = 2.0**-32  # a word times this is uniform in [0, 1)


def whole_numbers(
    delta: NDArray[np.float32],
    *,
    clip_norm: float,
    largest: int,
    key: bytes,
    divisor: float = 1.0,
    scale: float = 1.0,
) -> NDArray[np.int32]:
    """Return an update as whole numbers of steps, ``(d,)``.

    A step is ``clip_norm / largest``. ``delta / divisor`` is clipped to ``clip_norm``, multiplied by ``scale`` and
    rounded at random (``quantise``). The norm of the result is at most ``largest + √d``, checked in whole numbers: that
    is the sensitivity of a sum, for which noise is made. A result beyond it, which only an error of floating-point
    numbers could give, becomes zeros, as does an update that is not finite. The same key gives the same numbers on
    every processor.

    Args:
        delta: Float32 ``(d,)``; it is not changed.
        clip_norm: C > 0.
        largest: C in steps, ≥ 1.
        key: 32 secret bytes for this update's rounding only.
        divisor: FedNova's a, > 0; 1 for other algorithms.
        scale: The weight by staleness, 0 … 1.
    """
    factor = clip_factor(norm(delta) / divisor, clip_norm) / divisor * scale
    numbers = quantise(delta, clip_norm / largest, key, largest, factor)
    return numbers if is_within(numbers, largest) else np.zeros_like(numbers)


def is_within(numbers: NDArray[np.int32], largest: int) -> bool:
    """Return whether ``Σ q² ≤ (largest + √d)²``, for entries up to 2²³."""
    squares = 0
    for begin in range(0, len(numbers), _PIECE):
        piece = numbers[begin : begin + _PIECE].astype(np.int64)
        squares += int(np.dot(piece, piece))
    d = len(numbers)
    return squares <= largest**2 + d + math.isqrt(4 * largest**2 * d)


def norm(vector: NDArray[np.float32]) -> float:
    """Return a vector's Euclidean norm; not finite if a number is not.

    It is summed in float64: squares of float32, which would overflow or vanish, are exact there. The order of the
    additions does not depend on the processor.
    """
    sums = np.zeros(min(_PIECE, 1 << (len(vector) - 1).bit_length()))
    for begin in range(0, len(vector), len(sums)):
        piece = vector[begin : begin + len(sums)]
        with np.errstate(invalid="ignore"):  # of a NaN that signals
            sums[: len(piece)] += np.square(piece, dtype=np.float64)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return math.sqrt(sums[0])


def clip_factor(norm: float, clip_norm: float) -> float:
    """Return the factor ≤ 1 that brings a norm down to at most ``clip_norm``."""
    return clip_norm / norm if norm > clip_norm else 1.0


def quantise(
    vector: NDArray[np.float32], step: float, key: bytes, largest: int, factor: float = 1.0
) -> NDArray[np.int32]:
    """Return the numbers x = ``factor · vector / step``, rounded at random.

    ``q = floor(x); q += u < x − q``, where u is the key's next word divided by 2³²: the expectation of q is x. The
    arithmetic is in float64: ``floor(x + u)`` in float32 is biased by 0.016 at x = 3 · 10⁵.

    Args:
        vector: Float32 ``(d,)``. If x is not finite everywhere, the result is zeros.
        step: The distance of neighbouring values, > 0.
        key: 32 secret bytes, for this vector only.
        largest: The largest absolute value of a result; numbers beyond are set to it.
        factor: Scales the vector, for instance to clip it without a copy.

    Returns:
        Int32 ``(d,)``. Clamping apart, ``‖step · q − factor · vector‖ ≤ step · √d``.
    """
    quantised = np.empty(len(vector), np.int32)
    scale = factor / step
    for part, words in keystream_chunks(key, 0, len(vector)):
        with np.errstate(invalid="ignore"):  # of 0 · ∞
            x = np.multiply(vector[part], scale, dtype=np.float64)
        if not np.isfinite(x).all():
            return np.zeros_like(quantised)
        np.clip(x, -largest, largest, out=x)
        q = np.floor(x)
        x -= q
        quantised[part] = q
        quantised[part] += words * _U < x
    return quantised
