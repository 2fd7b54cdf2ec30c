"""Clipped vectors, and whole numbers in their place: stochastic rounding."""

import math

import numpy as np
from numpy.typing import NDArray

from offbeat_client.privacy.keystream import keystream_chunks

_U = 2.0**-32  # a word times this is uniform in [0, 1)


def norm(vector: NDArray[np.float32]) -> float:
    """Return a vector's Euclidean norm; not finite if a number is not.

    It is summed in float64: squares of float32 would overflow or vanish.
    """
    # Not a dot product: BLAS would use all cores, and takes longer that way.
    return math.sqrt(np.einsum("i,i->", vector, vector, dtype=np.float64))


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
        key: 32 bytes from the operating system, for this vector only.
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


def values(quantised: NDArray[np.int32], step: float) -> NDArray[np.float32]:
    """Return the values that quantised numbers stand for, ``step · q``, ``(d,)``."""
    return np.multiply(quantised, step, dtype=np.float64).astype(np.float32)
