"""Noise for released sums, regenerated from a secret."""

import hmac
import math
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from offbeat_client.differential_privacy.correlated_noise import coefficients, noise_factor, sensitivity
from offbeat_client.number_checks import check_count, check_not_negative, check_positive
from offbeat_client.privacy.keystream import KEY_BYTES, keystream

_PIECE = 1 << 15  # Gaussians at a time: the arrays of a piece stay in a core's cache
_CACHE_BYTES = 256 * 2**20


class NoiseSource:
    """Gaussian noise for each of a run's released sums.

    ``noise(t) = Σ_{j<p} c̃_j G_{t−j}``, with independent rows G of standard deviation
    ``σ · (clip_norm + step · √d) · sens_{k,b}(C) / √k``: stochastic rounding to multiples of ``step`` may add
    ``step · √d`` to an update's norm. The releases together are then a Gaussian mechanism with μ = √k/σ, for as long
    as each client takes part at most k times, at least b numbers apart.

    Nothing is stored but the secret: row r is made of AES-256's counter blocks under it, whose first 64 bits are r and
    the number of a piece. The same number gives the same noise after a restart, on the same machine bit for bit
    (elsewhere to the last digit of log and tan). Two different sums under one number would reveal their difference, so
    a number is used for one sum only, and a secret for one run only. Where a number might come again, as in a restored
    copy, rows are bound to their sums' contents: then the secret of a row is an HMAC of its content.

    Each Gaussian takes 64 random bits. Box-Muller's radius comes from a whole 64-bit word, so a value can reach 9.4
    standard deviations. A true Gaussian exceeds that with probability 5·10⁻²¹, one of 10¹¹ (10,000 rows of 10⁷) with
    5·10⁻¹⁰, far below any δ. 32-bit words would be faster, but end at 6.7 standard deviations, which one of 4·10¹⁰
    Gaussians exceeds: that none does would show. Doubles have gaps, through which noise on other doubles leaks
    (Mironov, 2012): round the noise to whole multiples of ``step`` and add it to a sum of such multiples.

    Attributes:
        deviation: Standard deviation of one coordinate of ``noise``, in the clip norm's unit; smaller for the first
            p − 1 numbers.

    Args:
        secret: 32 secret bytes from the operating system.
        length: d, the number of coordinates.
        noise_multiplier: σ > 0.
        clip_norm: Norm to which updates are clipped, > 0.
        participations: k ≥ 1.
        separation: b ≥ 1.
        bands: p; 1 is independent noise.
        step: Step of the updates' stochastic rounding, in the clip norm's unit; 0: they are not rounded.

    Raises:
        ValueError: A value is out of range.
    """

    def __init__(
        self,
        secret: bytes,
        length: int,
        *,
        noise_multiplier: float,
        clip_norm: float,
        participations: int = 1,
        separation: int = 1,
        bands: int = 1,
        step: float = 0.0,
    ) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"the secret must have {KEY_BYTES} bytes, got {len(secret)}")
        check_count("length", length)
        check_positive("noise_multiplier", noise_multiplier)
        check_positive("clip_norm", clip_norm)
        check_not_negative("step", step)
        self._secret = secret
        self._length = length
        unit = noise_multiplier * (clip_norm + step * math.sqrt(length))
        row_deviation = unit * sensitivity(participations, separation, bands) / math.sqrt(participations)
        self._coefficients = row_deviation * coefficients(bands)
        self.deviation = unit * noise_factor(participations, separation, bands)
        fits = bands > 1 and bands * length * 8 <= _CACHE_BYTES
        pieces = math.ceil(length / _PIECE)
        # Not a method: it would keep this object, and so the cache, alive until a search for cyclic garbage.
        self._normals = lru_cache((bands + 1) * pieces if fits else 0)(partial(_piece_of_row, length))

    def noise(self, number: int, contents: Sequence[bytes] | None = None) -> NDArray[np.float64]:
        """Return the noise of the sum with this number.

        Args:
            number: 1, 2, …: versions in the order of their release.
            contents: Digests of the sums 1 to ``number`` or more, to which their rows are bound; None to bind none.

        Returns:
            Array ``(d,)``.

        Raises:
            ValueError: The number is out of range.
        """
        check_count("number", number)
        rows = [
            (self._secret if contents is None else hmac.digest(self._secret, contents[row - 1], "sha256"), row)
            for row in range(number, max(0, number - len(self._coefficients)), -1)
        ]
        total = np.zeros(self._length)
        for piece, begin in enumerate(range(0, self._length, _PIECE)):
            part = total[begin : begin + _PIECE]
            for (secret, row), coefficient in zip(rows, self._coefficients, strict=False):
                part += coefficient * self._normals(secret, row, piece)[: len(part)]
        return total


def standard_normals(secret: bytes, number: int, pairs: int) -> NDArray[np.float64]:
    """Return ``2 · pairs`` independent Gaussians, by Box and Muller's transform.

    ``r = √(−2 ln u)`` and ``(r cos θ, r sin θ)``, with u in 2⁻⁶⁵ … 1 and θ in −π … π from 64 bits each. Cosine and
    sine come from one tangent, ``t = tan(θ/2)``, as ``(1 − t²)/(1 + t²)`` and ``2t/(1 + t²)``, because numpy
    computes a tangent several times as fast as a cosine and a sine where processors have AVX-512.

    Args:
        secret: 32 secret bytes.
        number: Which of the secret's streams, 0 ≤ number < 2⁶⁴.
        pairs: How many pairs.
    """
    words = keystream(secret, number, 4 * pairs).view(np.uint64)
    radius = words[:pairs] * 2.0**-64
    radius += 2.0**-65
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    tangent = words[pairs:].view(np.int64) * (math.pi / 2**64)
    np.tan(tangent, out=tangent)
    normals = np.empty(2 * pairs)
    cosines, sines = normals[:pairs], normals[pairs:]
    square = tangent * tangent
    radius /= 1 + square
    np.subtract(1, square, out=cosines)
    cosines *= radius
    np.multiply(tangent, radius, out=sines)
    sines *= 2
    return normals


def _piece_of_row(length: int, secret: bytes, row: int, piece: int) -> NDArray[np.float64]:
    count = min(_PIECE, length - piece * _PIECE)
    return standard_normals(secret, row << 32 | piece, math.ceil(count / 2))
