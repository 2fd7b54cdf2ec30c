from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.population.partition.normal_sizes import normal_sizes


def sizes(examples, clients, sigma, seed):
    return normal_sizes(examples, clients, sigma, np.random.default_rng(seed))


@given(st.integers(1, 60), st.sampled_from([0.0, 0.01, 0.3, 1.0, 30.0, 1e6]), st.data())
def test_sizes_are_at_least_one_and_add_up(examples, sigma, data):
    clients = data.draw(st.integers(1, examples))
    found = sizes(examples, clients, sigma, data.draw(st.integers(0, 2**63 - 1)))
    assert found.shape == (clients,)
    assert found.dtype == np.int64
    assert found.min() >= 1
    assert found.sum() == examples
    if sigma == 0:
        assert found.max() - found.min() <= 1
        assert sizes(examples, clients, -0.0, 1).tolist() == found.tolist()


@pytest.mark.parametrize("sigma", [0.05, 1 / 6, 0.3])
def test_sizes_are_normal(sigma):
    found = np.stack([sizes(100_000, 1000, sigma, seed) for seed in range(20)])
    wanted = NormalDist(100, sigma * 100)
    # 20,000 sizes: their deviation is known to 0.5 %; rounding adds 1/6 to the variance.
    assert found.std() == pytest.approx(np.sqrt(wanted.variance + 1 / 6), rel=0.03)
    # Halves, since sizes are whole numbers.
    for below in (100.5 - round(sigma * 100), 100.5, 100.5 + round(sigma * 100)):
        assert np.mean(found < below) == pytest.approx(wanted.cdf(below), abs=0.02)
    # No client is favoured by its place.
    assert abs(np.corrcoef(np.arange(1000), found.mean(axis=0))[0, 1]) < 0.15


def test_many_clients_have_one_example_where_the_spread_is_large():
    """With sizes max(1, 100 + 100 z - s), find the s for which their mean is 100, and how many are then 1."""
    z = NormalDist()

    def mean_above_one(s):  # of max(0, 99 + 100 z - s)
        edge = (s - 99) / 100
        return 100 * (z.pdf(edge) - edge * (1 - z.cdf(edge)))

    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_above_one(middle) > 99 else (low, middle)
    assert mean_above_one(low) == pytest.approx(99)

    found = np.stack([sizes(100_000, 1000, 1.0, seed) for seed in range(20)])
    assert np.mean(found == 1) == pytest.approx(z.cdf((low - 99) / 100), abs=0.015)
