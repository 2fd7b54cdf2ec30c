"""Pairs of seeds: only common ones, and none that flatter."""

import math

import pytest

from offbeat.report.paired import Paired, difference, ratio


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
