import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from offbeat_private.noise.correlated_noise import (
    LARGEST_BANDS,
    coefficients,
    noise_factor,
    prefix_sum_error,
    sensitivity,
    series,
)
from scipy.linalg import inv, toeplitz
from scipy.special import binom

from tests.offbeat_private.noise.audit import Vectors


def banded_inverse(bands: int, versions: int) -> Vectors:
    """Return C⁻¹ as a matrix, its bands the Taylor coefficients of (1 − x)^½."""
    column = np.zeros(versions)
    for power in range(min(bands, versions)):
        column[power] = binom(0.5, power) * (-1) ** power
    return toeplitz(column, np.zeros(versions))


def test_first_coefficients() -> None:
    assert coefficients(5).tolist() == [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128]
    assert coefficients(1).tolist() == [1]


@pytest.mark.parametrize("bands", [1, 2, 3, 7, 100])
def test_series_is_the_first_column_of_the_inverse(bands: int) -> None:
    np.testing.assert_allclose(series(bands, 300), inv(banded_inverse(bands, 300))[:, 0], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("bands", [1, 2, 3, 10, 100, 1000])
def test_series_falls_and_halves_within_the_bands(bands: int) -> None:
    """Both are assumed: the worst pattern is 0, b, 2b, …, and the horizon is long enough."""
    column = series(bands, 20 * bands)
    assert (column >= 0).all()
    assert (np.diff(column) <= 0).all()
    assert (column[bands:] <= column[:-bands] / 2).all()


def patterns(versions: int, participations: int, separation: int) -> Vectors:
    """Return all sets of at most k versions that are at least b apart, one a line, as zeros and ones."""
    chosen = [
        pattern
        for size in range(1, participations + 1)
        for pattern in combinations(range(versions), size)
        if all(later - earlier >= separation for earlier, later in pairwise(pattern))
    ]
    lines = np.zeros((len(chosen), versions))
    for line, pattern in zip(lines, chosen, strict=True):
        line[list(pattern)] = 1
    return lines


@pytest.mark.parametrize(("participations", "separation"), [(1, 1), (2, 3), (3, 5), (4, 4), (4, 1), (3, 7), (16, 1)])
def test_no_pattern_of_sixteen_versions_moves_more(participations: int, separation: int) -> None:
    """Every (k, b) pattern, its effect followed until it has died out; the worst is 0, b, 2b, …."""
    lines = patterns(16, participations, separation)
    worst = np.zeros(16)
    worst[: participations * separation : separation] = 1
    for bands in (1, 2, 4, 5, 16):
        columns = inv(banded_inverse(bands, 60 * bands))[:, :16]
        norms = np.sqrt(((lines @ (columns.T @ columns)) * lines).sum(axis=1))
        assert sensitivity(participations, separation, bands) == pytest.approx(norms.max(), rel=1e-9)
        assert np.linalg.norm(columns @ worst) == pytest.approx(norms.max(), rel=1e-12)


def test_updates_in_other_directions_move_less() -> None:
    """C's coefficients are not negative, so a client does most by the same update each time."""
    matrix = inv(banded_inverse(4, 200))[:, [0, 4, 8]]
    random = np.random.default_rng(1)
    for _ in range(200):
        updates = random.standard_normal((3, 5))
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        assert np.linalg.norm(matrix @ updates) <= sensitivity(3, 4, 4) * (1 + 1e-12)


@pytest.mark.parametrize("separation", [1, 9])
def test_independent_noise(separation: int) -> None:
    assert sensitivity(10, separation, 1) == pytest.approx(math.sqrt(10))
    assert noise_factor(10, separation, 1) == pytest.approx(1)
    assert prefix_sum_error(10, separation, 1, versions=2000) == pytest.approx(math.sqrt(2001 / 2))  # mean of t = 1 … n


@pytest.mark.parametrize("bands", [5, 20, 40])
def test_fewer_participations_cost_no_more_than_their_square_root(bands: int) -> None:
    """So √j/σ bounds the loss of a client that took part j < k times."""
    most = sensitivity(10, 20, bands)
    for participations in range(1, 11):
        share = sensitivity(participations, 20, bands) / most
        assert share <= math.sqrt(participations / 10) * (1 + 1e-12)


@pytest.mark.parametrize("bands", [1, 3, 10, 70])
def test_error_of_prefix_sums_by_matrices(bands: int) -> None:
    versions = 50
    sums = np.tril(np.ones((versions, versions))) @ banded_inverse(bands, versions)
    scale = sensitivity(4, 10, bands) / math.sqrt(4)
    expected = scale * math.sqrt((sums**2).sum() / versions)
    assert prefix_sum_error(4, 10, bands, versions) == pytest.approx(expected, rel=1e-9)


def test_gain_of_the_design() -> None:
    independent = prefix_sum_error(10, 100, 1, versions=2000)
    assert independent / prefix_sum_error(10, 100, 100, versions=2000) == pytest.approx(6.6, abs=0.05)
    assert independent / prefix_sum_error(10, 100, 10, versions=2000) == pytest.approx(3.8, abs=0.05)


def test_values_out_of_range_are_refused() -> None:
    for bands in (0, LARGEST_BANDS + 1):
        with pytest.raises(ValueError, match="bands"):
            sensitivity(10, 10, bands)
    with pytest.raises(ValueError, match="participations"):
        sensitivity(0, 10, 1)
    with pytest.raises(ValueError, match="separation"):
        sensitivity(10, 0, 1)
    with pytest.raises(ValueError, match="versions"):
        prefix_sum_error(10, 10, 1, 0)
