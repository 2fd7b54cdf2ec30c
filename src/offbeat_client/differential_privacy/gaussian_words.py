"""Gaussians from random words: Box and Muller's transform, in float64 and exactly.

A pair of Gaussians is a function of two whole numbers of 96 bits, W and V:

``r = √(−2 ln u)``, ``u = (W + ½) / 2⁹⁶``; ``θ = 2π (V + ½) / 2⁹⁶``, V from −2⁹⁵; the pair is ``(r cos θ, r sin θ)``.

The function is exact: no floating-point number is in it. ``gaussians`` computes it in float64 to ``ERROR``, and
``exact_gaussian`` to any precision. So whoever needs a rounded Gaussian decides it by the former nearly always and by
the latter in doubt, and gets the same whole number on every processor, whatever its logarithm and tangent are like in
the last digits.

A coordinate ends at 11.5 standard deviations. How far the 96 bits are from a true Gaussian is in docs/privacy/noise.md.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = 6
"""Words of 32 bits that a pair takes."""

LARGEST = 11.6
"""An upper bound of the absolute values, √(2 ln 2⁹⁷)."""

ERROR = 2.0**-44
"""An upper bound of the error of ``gaussians``.

It allows logarithm and tangent errors of four units in the last place, as numpy's own tests do. Each of the dozen
operations then adds less than 2⁻⁵⁰ · ``LARGEST``.
"""

_HALF_ANGLE = math.pi / 2**64  # θ/2 of one step of V's high 64 bits


def gaussians(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the pairs of these words: first all values by cosine, then all by sine.

    Cosine and sine come from one tangent, ``t = tan(θ/2)``, as ``(1 − t²)/(1 + t²)`` and ``2t/(1 + t²)``, because numpy
    computes a tangent several times as fast as a cosine and a sine where processors have AVX-512.

    Args:
        words: Array ``(6 · pairs,)``: the high 64 bits of all W, those of all V, the low 32 of all W, those of all V.

    Returns:
        Array ``(2 · pairs,)``; errors are below ``ERROR``.
    """
    high, angles, low, _ = _parts(words)
    u = np.multiply(high, 2.0**-64)
    u += np.multiply(low, 2.0**-96)
    u += 2.0**-97
    radius = np.log(u)
    # Near 1 the logarithm needs digits that u has lost. The bits of 2⁹⁶ − 1 − W are those of W, all flipped.
    near = np.flatnonzero(u > 1 - 2.0**-14)
    radius[near] = np.log1p(-(~high[near] * 2.0**-64 + ~low[near] * 2.0**-96 + 2.0**-97))
    radius *= -2
    np.sqrt(radius, out=radius)
    tangent = angles * _HALF_ANGLE
    np.tan(tangent, out=tangent)
    pairs = len(high)
    normals = np.empty(2 * pairs)
    cosines, sines = normals[:pairs], normals[pairs:]
    square = tangent * tangent
    radius /= 1 + square
    np.subtract(1, square, out=cosines)
    cosines *= radius
    np.multiply(tangent, radius, out=sines)
    sines *= 2
    return normals


def exact_gaussian(words: NDArray[np.uint32], index: int, context: Any) -> Any:
    """Return the exact value at an index of ``gaussians``, in an ``mpmath`` context."""
    high, angles, low, low_angles = _parts(words)
    pair = index % len(high)
    w = int(high[pair]) << 32 | int(low[pair])
    v = int(angles[pair]) * 2**32 + int(low_angles[pair])
    radius = context.sqrt(-2 * context.log(context.ldexp(2 * w + 1, -97)))
    angle = context.ldexp(2 * v + 1, -96) * context.pi
    return radius * (context.cos(angle) if index < len(high) else context.sin(angle))


def _parts(
    words: NDArray[np.uint32],
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the high words of W and of V, and the low ones."""
    pairs = len(words) // WORDS
    whole = words.astype("<u4", copy=False)  # a word of 64 bits is two of 32, the lower first, on every processor
    high = whole[: 2 * pairs].view("<u8").astype(np.uint64, copy=False)
    angles = whole[2 * pairs : 4 * pairs].view("<i8").astype(np.int64, copy=False)
    return high, angles, words[4 * pairs : 5 * pairs], words[5 * pairs :]
