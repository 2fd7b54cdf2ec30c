import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from offbeat.metric_bounds import AMOUNT, SHARE
from offbeat.statistics.estimates import Estimate, Paired, difference, estimate, half_width, ratio


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12).filter(lambda values: np.std(values) > 1e-6))
def test_the_interval_is_that_of_scipy(values):
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values))
    assert half_width(float(np.std(values, ddof=1)), len(values)) == pytest.approx((high - low) / 2)


def test_two_seeds():
    # The sample deviation of two numbers is their distance over √2, so s / √n is 0.1; t is 12.706.
    found = estimate([0.6, 0.8])
    assert (found.mean, found.seeds) == (pytest.approx(0.7), 2)
    assert found.deviation == pytest.approx(0.2 / math.sqrt(2))
    assert found.half_width == pytest.approx(1.2706, abs=1e-4)


def test_one_seed_says_nothing_of_the_spread():
    assert estimate([0.5]) == Estimate(0.5, None, None, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_with_a_seed_that_diverged_there_is_no_mean(bad):
    found = estimate([0.5, bad, 0.25])
    assert math.isnan(found.mean)
    assert (found.deviation, found.half_width, found.seeds) == (None, None, 3)


def test_only_common_seeds_count():
    assert difference({1: 5.0, 2: 7.0}, {2: 4.0, 3: 0.0}) == Paired(3.0, None, None, 1)
    assert difference({1: 5.0}, {2: 4.0}) is None


def test_the_interval_is_that_of_the_differences():
    found = difference({1: 11.0, 2: 102.0}, {1: 10.0, 2: 100.0})
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert (found.mean, found.seeds) == (1.5, 2)
    assert found.low == pytest.approx(1.5 - 12.7062 * 0.5, abs=1e-3)  # s / √2 = 1/2
    assert found.high == pytest.approx(1.5 + 12.7062 * 0.5, abs=1e-3)
    assert not found.is_clear(0.0)


def test_a_difference_of_all_seeds_alike_is_clear():
    found = difference({1: 2.0, 2: 3.0}, {1: 1.0, 2: 2.0})
    assert found == Paired(1.0, 1.0, 1.0, 2)
    assert found.is_clear(0.0)
    assert not Paired(1.0, None, None, 1).is_clear(0.0)


def test_a_ratio_is_a_geometric_mean():
    found = ratio({1: 2.0, 2: 8.0}, {1: 1.0, 2: 1.0})
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.mean == pytest.approx(4.0)
    assert found.low * found.high == pytest.approx(16.0)  # the interval is even on the scale of logarithms


@pytest.mark.parametrize("bad", [None, 0.0, math.inf])
def test_a_missing_value_leaves_no_ratio(bad):
    assert ratio({1: 2.0, 2: bad}, {1: 1.0, 2: 1.0}) is None
    assert ratio({1: 2.0, 2: 1.0}, {1: 1.0, 2: bad}) is None
    assert ratio({1: 2.0, 3: bad}, {1: 1.0, 2: 1.0}) == Paired(2.0, None, None, 1)


@pytest.mark.parametrize(
    ("values", "bounds", "ends"),
    [
        ((0.9, 0.95, 1.0), SHARE, (0.8257934, 1.0)),  # 0.95 ± 0.1242
        ((100, 101, 102), AMOUNT, (98.51586, 103.48414)),  # ± 2.484, which is little
        ((0, 10, 20), AMOUNT, (0.8340, 119.90)),  # 10 / exp(2.4841) and 10 · exp(2.4841)
        ((8, 10, 13), AMOUNT, (5.6428, 18.923)),  # 6.2516 is over half of 10.3333: times exp(±0.60499)
        ((1, 11, 21), (1.0, math.inf), (1.8340, 120.90)),
        ((0, 0, 0), AMOUNT, (0, 0)),
        ((0, 1), AMOUNT, (0, math.inf)),  # 12.7 standard errors
        ((7,), AMOUNT, None),
    ],
)
def test_an_interval_is_within_the_bounds(values, bounds, ends):
    found = estimate(values, bounds).interval
    assert found == (None if ends is None else pytest.approx(ends, rel=1e-4))
