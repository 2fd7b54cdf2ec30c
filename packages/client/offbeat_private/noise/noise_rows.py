"""Noise for released sums of whole numbers, regenerated from a secret."""

import hmac
import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray
from offbeat_core.number_checks import check_count, check_positive
from offbeat_private.masks.keystream import KEY_BYTES, keystream
from offbeat_private.noise.correlated_noise import coefficients, noise_factor, sensitivity
from offbeat_private.noise.gaussian_words import ERROR, LARGEST, WORDS, exact_gaussian, gaussians

_PIECE = 1 << 15  # Gaussians at a time: the arrays of a piece stay in a core's cache
_CACHE_BYTES = 256 * 2**20
_LARGEST_DEVIATION = 2.0**40
_PRECISION = 256  # bits of a sum that float64 cannot round: the chance that it takes more is below 2⁻²⁰⁰


class NoiseSource:
    """Rounded Gaussian noise for each of a run's released sums.

    Updates are whole numbers of steps, ``(d,)``, whose norm is at most ``largest + √d``: the clip norm is ``largest``
    steps, and stochastic rounding may add √d. Their sums are whole numbers, too. The noise of sum t is

    ``rint(Z_t)``, ``Z_t = Σ_{j<p} c̃_j G_{t−j}``,

    with independent rows G of standard deviation ``σ · (largest + √d) · sens_{k,b}(C) / √k``. For whole S,
    ``S + rint(Z) = rint(S + Z)``, which is computed from S + Z alone. So all releases are post-processing of a Gaussian
    mechanism with μ = √k/σ, for as long as each client takes part at most k times, at least b numbers apart. Added to a
    sum of floats, noise in floats would leak through the gaps between them (Mironov, 2012).

    Z is a function of random words without floating-point numbers (``gaussian_words``). It is computed in float64, and
    where the error of that could decide the rounding, exactly. So a number has the same noise on every processor.

    Nothing is stored but the secret. Row r is made of AES-256's counter blocks, whose first 64 bits are r and the
    number of a piece. Two different sums with the same noise would reveal their difference. Therefore a row is bound to
    its sum and to all sums before it: its AES key is the HMAC of a digest of them under the secret. A restored copy, or
    a second server of the same run, gets other rows from the first different sum on. Binding a row to its own sum alone
    would not do: after a different sum and then an equal one, two copies' banded noise would share the newest row only.
    The difference of their releases would show the row before it, and so the difference of the sums. A row is bound to
    σ and the other arguments, too: S + G and S + 2G would show S. A secret is for one run.

    Attributes:
        deviation: Standard deviation of one coordinate of ``noise``, in steps; smaller for the first p − 1 numbers.
        rows: p, the rows in the noise of a sum.

    Args:
        secret: 32 secret bytes from the operating system.
        length: d, the number of coordinates.
        noise_multiplier: σ > 0.
        largest: The clip norm in steps, ≥ 1.
        participations: k ≥ 1.
        separation: b ≥ 1.
        bands: p; 1 is independent noise.

    Raises:
        ValueError: A value is out of range, or the noise is.
    """

    def __init__(
        self,
        secret: bytes,
        length: int,
        *,
        noise_multiplier: float,
        largest: int,
        participations: int = 1,
        separation: int = 1,
        bands: int = 1,
    ) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"the secret must have {KEY_BYTES} bytes, got {len(secret)}")
        check_count("length", length)
        check_positive("noise_multiplier", noise_multiplier)
        check_count("largest", largest)
        unit = noise_multiplier * (largest + math.sqrt(length))
        self.deviation = unit * noise_factor(participations, separation, bands)
        if self.deviation > _LARGEST_DEVIATION:
            raise ValueError(f"noise of {self.deviation:.3g} steps is too large to be exact: take fewer bits")
        self.rows = bands
        # Two kinds of noise from one secret, on the same sum, would reveal it.
        kind = f"{length} {float(noise_multiplier).hex()} {largest} {participations} {separation} {bands}"
        self._secret = hmac.digest(secret, kind.encode(), "sha256")
        self._length = length
        row_deviation = unit * sensitivity(participations, separation, bands) / math.sqrt(participations)
        self._coefficients = row_deviation * coefficients(bands)
        # Of each Gaussian, and of p products and sums.
        self._error = float(np.abs(self._coefficients).sum()) * (ERROR + bands * LARGEST * 2.0**-52)
        fits = bands > 1 and bands * length * 8 <= _CACHE_BYTES
        pieces = math.ceil(length / _PIECE)
        # Not a method: it would keep this object, and so the cache, alive until a search for cyclic garbage.
        self._normals = lru_cache((bands + 1) * pieces if fits else 0)(partial(_normals_of_row, length))

    def noise(self, number: int, digests: Sequence[bytes]) -> NDArray[np.int64]:
        """Return the noise of the sum with this number, in steps.

        Args:
            number: 1, 2, …: versions in the order of their release.
            digests: Each of a sum and of all before it, the newest last; at least the last ``rows``.

        Returns:
            Array ``(d,)``.

        Raises:
            ValueError: The number is out of range, or digests are missing.
        """
        check_count("number", number)
        count = min(number, len(self._coefficients))
        if len(digests) < count:
            raise ValueError(f"the noise of sum {number} needs the digests of {count} sums, got {len(digests)}")
        rows = [(hmac.digest(self._secret, digests[-1 - back], "sha256"), number - back) for back in range(count)]
        noise = np.empty(self._length, np.int64)
        for piece, begin in enumerate(range(0, self._length, _PIECE)):
            part = np.zeros(min(_PIECE, self._length - begin))
            for (key, row), coefficient in zip(rows, self._coefficients, strict=False):
                part += coefficient * self._normals(key, row, piece)[: len(part)]
            rounded = np.rint(part)
            noise[begin : begin + _PIECE] = rounded
            part -= rounded
            np.abs(part, out=part)
            for index in np.flatnonzero(part >= 0.5 - self._error).tolist():
                noise[begin + index] = self._exactly_rounded(rows, piece, index)
        return noise

    def _exactly_rounded(self, rows: Sequence[tuple[bytes, int]], piece: int, index: int) -> int:
        """Return a coordinate of the noise that float64 cannot round."""
        context: Any = mpmath.mp.clone()
        context.prec = _PRECISION
        total = context.mpf(0)
        for (key, row), coefficient in zip(rows, self._coefficients.tolist(), strict=False):
            total += coefficient * exact_gaussian(_words(self._length, key, row, piece), index, context)
        return int(context.nint(total))


def _words(length: int, key: bytes, row: int, piece: int) -> NDArray[np.uint32]:
    """Return the random words of a piece of a row."""
    count = min(_PIECE, length - piece * _PIECE)
    return keystream(key, row << 32 | piece, WORDS * math.ceil(count / 2))


def _normals_of_row(length: int, key: bytes, row: int, piece: int) -> NDArray[np.float64]:
    return gaussians(_words(length, key, row, piece))
