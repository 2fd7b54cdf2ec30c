"""Gaussians from random words: Box and Muller's transform, in float64 and exactly.

A pair of Gaussians is a function of two whole numbers of 128 bits, W and V:

``r = √(−2 ln u)``, ``u = (W + ½) / 2¹²⁸``; ``θ = 2π (V + ½) / 2¹²⁸``, V from −2¹²⁷; the pair is
``(r cos θ, r sin θ)``.

The function is exact: no floating-point number is in it. ``gaussians`` computes it in float64 to ``ERROR``, and
``exact_gaussian`` to any precision. So a rounded Gaussian is decided by the former nearly always and by the latter in
doubt, and it is the same whole number on every processor, whatever the last digits of its logarithm and tangent are.

A coordinate ends at 13.4 standard deviations. How far the 128 bits are from a true Gaussian is in
docs/privacy/noise.md.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = 8
"""Words of 32 bits that a pair takes."""

LARGEST = 13.4
"""An upper bound of the absolute values, √(2 ln 2¹²⁹)."""

ERROR = 2.0**-44
"""An upper bound of the error of ``gaussians``.

It allows logarithm and tangent errors of four units in the last place, as numpy's own tests do. Each of the dozen
operations then adds less than 2⁻⁵¹ · ``LARGEST``.
"""

_HALF_ANGLE = np.pi / 2**64  # θ/2 of one step of V's high 64 bits


def gaussians(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the pairs of these words: first all values by cosine, then all by sine.

    Cosine and sine come from one tangent, ``t = tan(θ/2)``, as ``(1 − t²)/(1 + t²)`` and ``2t/(1 + t²)``, because numpy
    computes a tangent several times as fast as a cosine and a sine where processors have AVX-512.

    Args:
        words: Array ``(8 · pairs,)``: the high 64 bits of all W, those of all V, the low 64 of all W, those of all V.

    Returns:
        Array ``(2 · pairs,)``; errors are below ``ERROR``.
    """
    high, angles, low, _ = _parts(words)
    u = high * 2.0**-64
    small = np.flatnonzero(u < 2.0**-12)  # where the low bits are more than a rounding error
    u[small] += low[small] * 2.0**-128 + 2.0**-129
    radius = np.log(u)
    # Near 1 the logarithm needs digits that u has lost. The bits of 2¹²⁸ − 1 − W are those of W, all flipped.
    near = np.flatnonzero(u > 1 - 2.0**-14)
    radius[near] = np.log1p(-(~high[near] * 2.0**-64 + ~low[near] * 2.0**-128 + 2.0**-129))
    radius *= -2
    np.sqrt(radius, out=radius)
    tangent = angles.view(np.int64) * _HALF_ANGLE
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
    w = int(high[pair]) << 64 | int(low[pair])
    v = int(angles.view(np.int64)[pair]) * 2**64 + int(low_angles[pair])
    radius = context.sqrt(-2 * context.log(context.ldexp(2 * w + 1, -129)))
    angle = context.ldexp(2 * v + 1, -128) * context.pi
    return radius * (context.cos(angle) if index < len(high) else context.sin(angle))


def _parts(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the high words of W and of V, and the low ones, ``(4, pairs)``."""
    # A word of 64 bits is two of 32, the lower first, on every processor.
    return words.astype("<u4", copy=False).view("<u8").astype(np.uint64, copy=False).reshape(4, -1)
