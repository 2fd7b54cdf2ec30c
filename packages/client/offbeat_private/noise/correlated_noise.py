"""Correlated noise: the banded inverse square root (BISR).

The noise of version t is ``Z_t = Σ_{j<p} c̃_j G_{t−j}`` with independent Gaussian rows G: Z = C⁻¹ G, where C⁻¹ is a
lower triangular Toeplitz matrix with p bands. A model is a sum over versions, and in it most of Z cancels. p = 1 is
independent noise.

From Kalinin, McKenna, Upadhyay and Lampert, "Back to Square Roots: An Optimal Bound on the Matrix Factorization Error
for Multi-Epoch Differentially Private SGD" (arXiv 2505.12128): the construction (the bands are the first p coefficients
of (1 − x)^½, the inverse square root of the matrix of prefix sums) and that its error is asymptotically optimal for
clients that take part k times, b versions apart.
From Kalinin and Lampert (arXiv 2405.13763, Theorem 2): a Toeplitz C whose coefficients are not negative and do not rise
is most sensitive to a client that takes part in versions 0, b, 2b, ….

C's coefficients are such, for every p. With ``a_j = −c̃_j ≥ 0``, C's series obeys ``c_t = Σ_{0<j<p} a_j c_{t−j}``, so
no c_t is negative; for t < p it is the series of (1 − x)^−½, which falls; and for t ≥ p − 1 the differences obey
``c_t − c_{t+1} = Σ_j a_j (c_{t−j} − c_{t+1−j})``, which is not negative by induction.
"""

import math

import numpy as np
from numpy.typing import NDArray
from offbeat_core.number_checks import check_count
from offbeat_private.limits import LARGEST_BANDS

# c_t at least halves within p versions, so beyond 32 p its square is below the rounding error of a double.
_HORIZON = 32


def coefficients(bands: int) -> NDArray[np.float64]:
    """Return c̃_0 … c̃_{p−1}, the bands of C⁻¹: 1, −1/2, −1/8, −1/16, ….

    Raises:
        ValueError: ``bands`` is not in 1 … ``LARGEST_BANDS``.
    """
    check_count("bands", bands)
    if bands > LARGEST_BANDS:
        raise ValueError(f"bands must be at most {LARGEST_BANDS}, got {bands}")
    steps = np.arange(1, bands)
    return np.cumprod(np.concatenate((np.ones(1), (steps - 1.5) / steps)), dtype=np.float64)


def series(bands: int, length: int) -> NDArray[np.float64]:
    """Return c_0 … c_{length−1}, the first column of C.

    Each product and each sum is rounded by itself, so the result is the same on every processor.
    """
    inverse = coefficients(bands)[1:]
    column = np.eye(1, length)[0]
    for t in range(length - 1):
        later = column[t + 1 : t + bands]
        later -= inverse[: len(later)] * column[t]
    return column


def sensitivity(participations: int, separation: int, bands: int) -> float:
    """Return sens_{k,b}(C): how far a client's updates of norm 1 can move C's output.

    ``‖Σ_{i<k} C e_{ib}‖`` over endlessly many versions, so that no run is too long for its noise. It is at least √k,
    which it is for independent noise.

    Args:
        participations: k, the most versions with an update of one client, ≥ 1.
        separation: b, the least difference between two of their numbers, ≥ 1.
        bands: p, 1 … ``LARGEST_BANDS``.

    Raises:
        ValueError: A value is out of range.
    """
    check_count("participations", participations)
    check_count("separation", separation)
    check_count("bands", bands)
    column = series(bands, _HORIZON * bands)
    # Not dot products: their order of additions, and so the last digit, depends on the processor.
    total = participations * math.fsum(column * column)
    for apart in range(1, min(participations, math.ceil(len(column) / separation))):
        lag = apart * separation
        total += 2 * (participations - apart) * math.fsum(column[lag:] * column[:-lag])
    return math.sqrt(total)


def noise_factor(participations: int, separation: int, bands: int) -> float:
    """Return the standard deviation of Z in units of independent noise's.

    It is at least 1: a single banded release is noisier, only sums of them are not.
    """
    bands_norm = float(np.linalg.norm(coefficients(bands)))
    return sensitivity(participations, separation, bands) / math.sqrt(participations) * bands_norm


def prefix_sum_error(participations: int, separation: int, bands: int, versions: int) -> float:
    """Return the root mean squared error of all prefix sums, at σ = 1 and clip norm 1.

    The mean is over the versions: ``sens_{k,b}(C)/√k · ‖A C⁻¹‖_F / √n`` for each coordinate, A the matrix of prefix
    sums. The gain of banded noise is this value at one band divided by that at p bands.

    Args:
        participations: k ≥ 1.
        separation: b ≥ 1.
        bands: p, 1 … ``LARGEST_BANDS``.
        versions: n ≥ 1.

    Raises:
        ValueError: A value is out of range.
    """
    check_count("versions", versions)
    # A C⁻¹ is Toeplitz, its coefficients are the prefix sums of the bands; the last of them repeats.
    sums = np.cumsum(coefficients(bands))[:versions]
    counts = versions - np.arange(len(sums))
    rest = versions - len(sums)
    squares = float(counts @ sums**2) + rest * (rest + 1) / 2 * float(sums[-1]) ** 2
    scale = sensitivity(participations, separation, bands) / math.sqrt(participations)
    return scale * math.sqrt(squares / versions)
