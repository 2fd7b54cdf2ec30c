import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from offbeat.report.confidence_interval import Estimate, estimate, half_width


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
