import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.linalg import toeplitz
from scipy.special import binom
from scipy.stats import chi2, kstest

from offbeat_client.differential_privacy import noise_rows
from offbeat_client.differential_privacy.correlated_noise import noise_factor, sensitivity
from offbeat_client.differential_privacy.noise_rows import NoiseSource, standard_normals
from tests.offbeat_client.differential_privacy.audit import Vectors

SECRET = bytes(range(32))
LENGTH = 100_001  # more than a piece, and odd
BANDED: dict[str, Any] = {"participations": 3, "separation": 4, "bands": 4}


def source(secret: bytes = SECRET, length: int = LENGTH, **changes: Any) -> NoiseSource:
    values: dict[str, Any] = {"noise_multiplier": 1.0, "clip_norm": 1.0, **changes}
    return NoiseSource(secret, length, **values)


@pytest.fixture(scope="module")
def rows() -> Vectors:
    """Twenty rows, which are the noise of σ = 1 with one band."""
    independent = source()
    return np.stack([independent.noise(number) for number in range(1, 21)])


BOUND = [bytes([number]) * 32 for number in range(1, 21)]


def test_rows_are_bound_to_what_they_are_said_to_be_for():
    plain, banded = source(), source(**BANDED)
    first = plain.noise(3, BOUND)
    assert (first == plain.noise(3, BOUND)).all()
    assert (first == plain.noise(3, [b"", b"", *BOUND[2:]])).all()  # of independent noise, only the last row
    for other in (plain.noise(3), plain.noise(3, [*BOUND[:2], b"another"]), plain.noise(4, BOUND)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / math.sqrt(LENGTH)
    rows = np.stack([plain.noise(number, BOUND) for number in range(1, 7)])
    expected = sum(binom(0.5, j) * (-1) ** j * rows[5 - j] for j in range(4)) * sensitivity(3, 4, 4) / math.sqrt(3)
    for _ in range(2):  # made, and from the cache
        np.testing.assert_allclose(banded.noise(6, BOUND), expected, rtol=1e-9, atol=1e-9)


def test_standard_normals_are_box_and_mullers() -> None:
    """By cosine and sine, of the words that AES-256 makes of counter blocks."""
    encryptor = Cipher(algorithms.AES(SECRET), modes.ECB()).encryptor()
    blocks = b"".join((7 << 64 | i).to_bytes(16, "big") for i in range(100))
    words = np.frombuffer(encryptor.update(blocks), "<u8")
    radius = np.sqrt(-2 * np.log((words[:100].astype(float) + 0.5) / 2.0**64))
    angle = words[100:].astype(float) * (2 * math.pi / 2.0**64)
    expected = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))
    np.testing.assert_allclose(standard_normals(SECRET, 7, 100), expected, rtol=0, atol=1e-13)


def test_smallest_and_largest_words_give_finite_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        words = np.full(2, word, np.uint64)
        monkeypatch.setattr(noise_rows, "keystream", lambda *_, words=words: words.view(np.uint32))
        values = standard_normals(SECRET, 1, 1)
        assert np.isfinite(values).all()
        assert np.linalg.norm(values) == pytest.approx(
            math.sqrt(2 * math.log(2.0**65) if word == 0 else -2 * math.log((word + 0.5) / 2**64)), abs=1e-7
        )


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


def test_banded_noise_is_the_matrix_times_the_rows(rows: Vectors) -> None:
    banded = source(**BANDED, noise_multiplier=2.5, clip_norm=3.0, step=0.001)
    column = np.zeros(20)
    column[:4] = [binom(0.5, j) * (-1) ** j for j in range(4)]
    unit = 2.5 * (3.0 + 0.001 * math.sqrt(LENGTH)) * sensitivity(3, 4, 4) / math.sqrt(3)
    expected = unit * toeplitz(column, np.zeros(20)) @ rows
    for number in range(1, 21):
        np.testing.assert_allclose(banded.noise(number), expected[number - 1], rtol=1e-9, atol=1e-9)


def test_no_row_is_used_twice() -> None:
    """Independent again after C, all numbers' noise has the covariance of distinct rows: chi squared of its entries."""
    numbers, length = 40, 20_000
    banded = source(length=length, **BANDED)
    noise = np.stack([banded.noise(number) for number in range(1, numbers + 1)])
    column = np.zeros(numbers)
    column[:4] = [binom(0.5, j) * (-1) ** j for j in range(4)]
    independent = np.linalg.solve(toeplitz(column, np.zeros(numbers)), noise)
    independent /= sensitivity(3, 4, 4) / math.sqrt(3)
    covariance = independent @ independent.T / length
    upper = covariance[np.triu_indices(numbers, 1)]
    assert (upper**2).sum() * length < chi2.isf(1e-6, len(upper))
    assert np.abs(np.diag(covariance) - 1).max() < 5 * math.sqrt(2 / length)


@pytest.mark.parametrize("bands", [1, 4])
def test_the_same_number_gives_the_same_noise_after_a_restart(bands: int) -> None:
    before, after = source(**BANDED | {"bands": bands}), source(**BANDED | {"bands": bands})
    expected = {number: before.noise(number) for number in (1, 2, 3, 9)}
    for number in (9, 1, 3, 2, 9):
        assert (after.noise(number) == expected[number]).all()


def test_noise_is_the_same_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [source(**BANDED).noise(number) for number in (1, 5, 6)]
    monkeypatch.setattr(noise_rows, "_CACHE_BYTES", 4 * LENGTH * 8 - 1)
    without = source(**BANDED)
    for number, noise in zip((1, 5, 6), expected, strict=True):
        assert (without.noise(number) == noise).all()
    assert without._normals.cache_info().currsize == 0


def test_cache_holds_the_last_rows_only_and_saves_the_others() -> None:
    banded = source(**BANDED)
    pieces = math.ceil(LENGTH / noise_rows._PIECE)
    for number in range(1, 21):
        banded.noise(number)
    assert banded._normals.cache_info().currsize == 5 * pieces
    assert banded._normals.cache_info().misses == 20 * pieces


def test_memory_is_free_as_soon_as_the_source_is_not_used() -> None:
    banded = source(**BANDED)
    banded.noise(1)
    alive = weakref.ref(banded)
    gc.disable()
    try:
        del banded
        assert alive() is None
    finally:
        gc.enable()


def test_what_a_caller_does_with_the_noise_changes_no_later_noise() -> None:
    changed, expected = source(**BANDED), source(**BANDED)
    changed.noise(1)[:] = 7
    assert (changed.noise(2) == expected.noise(2)).all()


def test_other_secrets_give_other_noise() -> None:
    left, right = source(bytes(32)).noise(1), source(SECRET).noise(1)
    assert abs(left @ right) < 5 * math.sqrt(LENGTH)


def test_deviation_is_that_of_the_noise() -> None:
    banded = source(**BANDED, noise_multiplier=3.0, clip_norm=0.5)
    assert banded.deviation == pytest.approx(3 * 0.5 * noise_factor(3, 4, 4))
    assert banded.noise(9).std() == pytest.approx(banded.deviation, rel=5 / math.sqrt(2 * LENGTH))
    assert source(noise_multiplier=3.0, clip_norm=0.5).deviation == pytest.approx(1.5)


@pytest.mark.parametrize("length", [1, 2, 3, noise_rows._PIECE, noise_rows._PIECE + 1])
def test_any_length(length: int) -> None:
    noise = source(length=length).noise(1)
    assert noise.shape == (length,)
    assert noise.dtype == np.float64
    assert (noise != 0).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"length": 0},
        {"noise_multiplier": 0.0},
        {"clip_norm": math.inf},
        {"step": -1.0},
        {"bands": 0},
        {"participations": 0},
        {"separation": 0},
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        source(**changes)


def test_numbers_and_secrets_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="number"):
        source().noise(0)
    with pytest.raises(ValueError, match="32 bytes"):
        source(bytes(16))
