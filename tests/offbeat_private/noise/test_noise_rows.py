import gc
import hmac
import math
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from offbeat_private.masks.keystream import keystream
from offbeat_private.noise import noise_rows
from offbeat_private.noise.correlated_noise import noise_factor, sensitivity
from offbeat_private.noise.gaussian_words import ERROR, gaussians
from offbeat_private.noise.noise_rows import NoiseSource
from scipy.linalg import toeplitz
from scipy.special import binom
from scipy.stats import chi2, kstest

from tests.offbeat_private.noise.audit import Vectors

SECRET = bytes(range(32))
LENGTH = 100_001  # more than a piece, and odd
LARGEST = 2**19 - 1
BANDED: dict[str, Any] = {"participations": 3, "separation": 4, "bands": 4}
DIGESTS = [bytes([number]) * 32 for number in range(1, 41)]


def source(secret: bytes = SECRET, length: int = LENGTH, **changes: Any) -> NoiseSource:
    values: dict[str, Any] = {"noise_multiplier": 1.0, "largest": LARGEST, **changes}
    return NoiseSource(secret, length, **values)


def noise(source: NoiseSource, number: int) -> NDArray[np.int64]:
    return source.noise(number, DIGESTS[:number])


def row_of(source: NoiseSource, number: int) -> Vectors:
    """Return a row of the source, unscaled."""
    key = hmac.digest(source._secret, DIGESTS[number - 1], "sha256")
    return np.concatenate([source._normals(key, number, piece) for piece in range(4)])[:LENGTH]


def unit(length: int = LENGTH) -> float:
    """The largest norm of an update, in steps."""
    return LARGEST + math.sqrt(length)


@pytest.fixture(scope="module")
def rows() -> Vectors:
    """Twenty rows, which are the noise of σ = 1 with one band, in units of the largest norm."""
    independent = source()
    return np.stack([noise(independent, number) for number in range(1, 21)]) / unit()


def test_noise_is_rounded_gaussians_of_the_words_of_each_row() -> None:
    """AES-256's words under the HMAC of arguments and digest, from row and piece; the sum of rows is rounded once."""
    length, pieces = 40_000, (32_768, 40_000 - 32_768)
    found = source(length=length, **BANDED).noise(2, DIGESTS[:2])
    deviation = (LARGEST + math.sqrt(length)) * sensitivity(3, 4, 4) / math.sqrt(3)
    expected = np.zeros(length)
    kind = b"40000 0x1.0000000000000p+0 524287 3 4 4"
    for row, coefficient in ((2, 1.0), (1, -0.5)):
        key = hmac.digest(hmac.digest(SECRET, kind, "sha256"), DIGESTS[row - 1], "sha256")
        words = [keystream(key, row << 32 | piece, 4 * count) for piece, count in enumerate(pieces)]
        expected += coefficient * deviation * np.concatenate([gaussians(part) for part in words])
    assert found.dtype == np.int64
    np.testing.assert_array_less(np.abs(found - expected), 0.5 + 1e-6)


def test_rows_are_bound_to_their_sums() -> None:
    plain, banded = source(), source(**BANDED)
    first = noise(plain, 3)
    assert (first == noise(plain, 3)).all()
    assert (first == plain.noise(3, DIGESTS[2:3])).all()  # independent noise takes the last digest only
    for other in (plain.noise(3, [*DIGESTS[:2], b"another"]), plain.noise(4, DIGESTS[:3])):
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / math.sqrt(LENGTH)
    rows = np.stack([row_of(banded, number) for number in range(1, 7)]) * unit()
    expected = sum(binom(0.5, j) * (-1) ** j * rows[5 - j] for j in range(4)) * sensitivity(3, 4, 4) / math.sqrt(3)
    for _ in range(2):  # made, and from the cache
        np.testing.assert_allclose(noise(banded, 6), expected, rtol=0, atol=4)  # the rows here are rounded
    with pytest.raises(ValueError, match="the noise of sum 6 needs the digests of 4 sums, got 3"):
        banded.noise(6, DIGESTS[:3])


@pytest.mark.parametrize(
    "changes", [{"noise_multiplier": 2.0}, {"participations": 2}, {"separation": 2}, {"secret": bytes(32)}]
)
def test_noise_of_other_arguments_is_independent(changes: dict[str, Any]) -> None:
    """A secret that was kept for a run with another σ: of one row, S + σ G and S + 2σ G would show S."""
    one, other = noise(source(), 1) / unit(), noise(source(**changes), 1) / unit()
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(LENGTH)


def test_in_doubt_a_sum_is_rounded_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error bound of 1/100 of a step, a fiftieth of all sums is in doubt, and none changes."""
    for changes in ({}, BANDED):
        expected = noise(source(length=3000, **changes), 5)
        doubtful = source(length=3000, **changes)
        doubtful._error = 0.01
        calls: list[int] = []
        exactly = doubtful._exactly_rounded
        monkeypatch.setattr(doubtful, "_exactly_rounded", lambda *args, f=exactly, c=calls: c.append(1) or f(*args))
        assert np.array_equal(noise(doubtful, 5), expected)
        assert 30 < len(calls) < 100


def test_the_error_of_float64_is_within_its_bound() -> None:
    """Sums computed with other last digits are rounded to the same whole numbers."""
    random = np.random.default_rng(0)
    for changes in ({}, BANDED):
        normal, other = source(length=20_000, **changes), source(length=20_000, **changes)
        cached = other._normals

        def shaken(*args: Any, cached: Any = cached) -> Vectors:
            normals = cached(*args)
            return normals + random.uniform(-ERROR, ERROR, len(normals))

        other._normals = shaken  # pyright: ignore[reportAttributeAccessIssue]
        for number in range(1, 9):
            assert np.array_equal(noise(other, number), noise(normal, number))


def test_rows_are_gaussian(rows: Vectors) -> None:
    for row in rows:
        assert kstest(row, "norm").pvalue > 1e-4
    assert kstest(rows.ravel(), "norm").pvalue > 1e-3
    # Tails: the largest of 2,000,020 values is between 4.3 and 6.6, but for a probability of 10⁻⁴ at each end.
    assert 4.3 < np.abs(rows).max() < 6.6


def test_every_row_has_the_right_norm(rows: Vectors) -> None:
    squares = (rows**2).sum(axis=1)
    assert (np.abs(squares - LENGTH) < 5 * math.sqrt(2 * LENGTH)).all()


def test_rows_are_independent(rows: Vectors) -> None:
    """Neither two rows nor one row and another's shifted copy, a piece, half a piece or a place away, correlate."""
    for shift in (0, 1, noise_rows._PIECE // 2, noise_rows._PIECE):
        left, right = rows[:, : LENGTH - shift], rows[:, shift:]
        products = left @ right.T
        if shift == 0:
            np.fill_diagonal(products, 0.0)
        assert np.abs(products).max() < 5.5 * math.sqrt(LENGTH - shift)


def test_squares_of_pairs_are_independent(rows: Vectors) -> None:
    """Box-Muller's two values share a radius; it must not show."""
    squares = rows**2 - 1
    half = noise_rows._PIECE // 2
    products = (squares[:, :half] * squares[:, half : 2 * half]).sum()  # a product has variance 4
    assert abs(products) < 5 * math.sqrt(4 * 20 * half)


def test_no_row_is_used_twice() -> None:
    """Independent again after C, all numbers' noise has the covariance of distinct rows: chi squared of its entries."""
    numbers, length = 40, 20_000
    banded = source(length=length, **BANDED)
    made = np.stack([noise(banded, number) for number in range(1, numbers + 1)]) / unit(length)
    column = np.zeros(numbers)
    column[:4] = [binom(0.5, j) * (-1) ** j for j in range(4)]
    independent = np.linalg.solve(toeplitz(column, np.zeros(numbers)), made)
    independent /= sensitivity(3, 4, 4) / math.sqrt(3)
    covariance = independent @ independent.T / length
    upper = covariance[np.triu_indices(numbers, 1)]
    assert (upper**2).sum() * length < chi2.isf(1e-6, len(upper))
    assert np.abs(np.diag(covariance) - 1).max() < 5 * math.sqrt(2 / length)


@pytest.mark.parametrize("bands", [1, 4])
def test_the_same_number_gives_the_same_noise_after_a_restart_and_without_a_cache(
    bands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = source(**BANDED | {"bands": bands}), source(**BANDED | {"bands": bands})
    expected = {number: noise(before, number) for number in (1, 2, 3, 9)}
    noise(after, 1)[:] = 7  # a caller may change what it gets
    for number in (9, 1, 3, 2, 9):
        assert (noise(after, number) == expected[number]).all()
    monkeypatch.setattr(noise_rows, "_CACHE_BYTES", bands * LENGTH * 8 - 1)
    without = source(**BANDED | {"bands": bands})
    assert all((noise(without, number) == made).all() for number, made in expected.items())
    assert without._normals.cache_info().currsize == 0


def test_cache_holds_the_last_rows_only_and_saves_the_others() -> None:
    banded = source(**BANDED)
    pieces = math.ceil(LENGTH / noise_rows._PIECE)
    for number in range(1, 21):
        noise(banded, number)
    assert banded._normals.cache_info().currsize == 5 * pieces
    assert banded._normals.cache_info().misses == 20 * pieces


def test_memory_is_free_as_soon_as_the_source_is_not_used() -> None:
    banded = source(**BANDED)
    noise(banded, 1)
    alive = weakref.ref(banded)
    gc.disable()
    try:
        del banded
        assert alive() is None
    finally:
        gc.enable()


def test_deviation_is_that_of_the_noise() -> None:
    banded = source(**BANDED, noise_multiplier=3.0)
    assert banded.deviation == pytest.approx(3 * unit() * noise_factor(3, 4, 4))
    assert noise(banded, 9).std() == pytest.approx(banded.deviation, rel=5 / math.sqrt(2 * LENGTH))
    assert source(noise_multiplier=3.0).deviation == pytest.approx(3 * unit())


@pytest.mark.parametrize("length", [1, 2, 3, noise_rows._PIECE, noise_rows._PIECE + 1])
def test_any_length(length: int) -> None:
    made = noise(source(length=length), 1)
    assert made.shape == (length,)
    assert made.dtype == np.int64
    assert (made != 0).mean() > 0.99


NAMES = ("length", "noise_multiplier", "largest", "bands", "participations", "separation")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({name: 0}, name) for name in NAMES),
        ({"secret": bytes(16)}, "32 bytes"),
        (
            {"length": 1, "noise_multiplier": 1e10},
            r"noise of 5\.24e\+15 steps is too large to be exact: take fewer bits",
        ),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source(**changes)
    with pytest.raises(ValueError, match="number"):
        source().noise(0, [])
