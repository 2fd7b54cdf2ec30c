"""All pairs of algorithms: simultaneous intervals, by hand, by simulation, and with bounds."""

import math

import numpy as np
import pytest

from offbeat.statistics.all_pairs import Observed, all_pairs, seeds_needed


def exact(**values):
    return {label: {seed: Observed(one, one) for seed, one in enumerate(own)} for label, own in values.items()}


def test_few_seeds_get_students_t_with_bonferronis_correction():
    first, second, third = all_pairs(exact(a=(1.0, 2.0, 3.0), b=(0.0, 1.5, 2.3), c=(5.0, 5.0, 5.0)))
    assert [(pair.first, pair.second) for pair in (first, second, third)] == [("a", "b"), ("a", "c"), ("b", "c")]
    differences = np.array([1.0, 0.5, 0.7])
    half = 7.6488 * differences.std(ddof=1) / math.sqrt(3)  # t(1 − 0.05 / 6, 2), from a table
    assert (first.mean, first.seeds) == (pytest.approx(differences.mean()), 3)
    assert (first.low, first.high) == pytest.approx((differences.mean() - half, differences.mean() + half), rel=1e-4)
    assert not first.is_separated
    assert (first.reversed().low, first.reversed().high) == (-first.high, -first.low)


@pytest.mark.parametrize("seeds", [3, 6, 10])
def test_equal_algorithms_are_seldom_separated(seeds):
    generator = np.random.default_rng(seeds)
    separated = 0
    for _ in range(400):
        common, own = generator.normal(size=seeds), generator.normal(size=(4, seeds))
        values = {str(one): common + own[one] for one in range(4)}
        separated += any(pair.is_separated for pair in all_pairs(exact(**values)))
    assert separated <= 0.08 * 400  # 5 % and three standard errors


def test_six_seeds_separate_more_pairs_than_bonferroni_does():
    generator = np.random.default_rng(0)
    noise = generator.normal(size=8)
    values = {label: 0.1 * place * (1 + noise) for place, label in enumerate("abc")}
    narrow = {(pair.first, pair.second): pair.high - pair.low for pair in all_pairs(exact(**values))}
    with_bound = exact(**values)
    with_bound["d"] = {seed: Observed(9.0, math.inf) for seed in range(8)}  # so that max-t cannot be used
    wide = {(pair.first, pair.second): pair.high - pair.low for pair in all_pairs(with_bound)}
    assert all(width < wide[names] for names, width in narrow.items())


def test_bounds_give_one_sided_statements():
    values = exact(a=(1.0, 1.2, 1.1, 0.9))
    values["b"] = {seed: Observed(5.0, math.inf) if seed else Observed(4.9, 4.9) for seed in range(4)}
    (pair,) = all_pairs(values)
    assert pair.mean is None
    assert pair.low == -math.inf
    assert -4.4 < pair.high < -3.4
    values["b"] = {seed: Observed(5.0, math.inf) for seed in range(4)}
    values["a"] = {seed: Observed(5.0, math.inf) for seed in range(4)}
    (pair,) = all_pairs(values)
    assert not pair.is_separated


@pytest.mark.parametrize(("seeds", "is_separated"), [(5, False), (6, True)])
def test_equal_differences_tell_only_their_signs(seeds, is_separated):
    (pair,) = all_pairs(exact(a=range(seeds), b=[one - 1 for one in range(seeds)]))
    assert pair.is_separated is is_separated
    (pair,) = all_pairs(exact(a=range(seeds), b=range(seeds)))
    assert not pair.is_separated


def test_only_common_seeds_are_compared():
    values = exact(a=(1.0, 2.0), b=(0.0, 1.5))
    values["b"][7] = Observed(100.0, 100.0)
    values["c"] = {9: Observed(0.0, 0.0)}
    (pair,) = all_pairs(values)
    assert (pair.first, pair.second, pair.seeds, pair.mean) == ("a", "b", 2, 0.75)


def test_the_seeds_that_would_separate_a_pair():
    (pair,) = all_pairs(exact(a=(0.0, 2.0, 4.0), b=(0.0, 0.5, 1.0)))  # the mean is 1.5, the deviation also
    # (t(0.975, 10) + t(0.8, 10)) / √11 = (2.228 + 0.879) / 3.317 < 1 ≤ (2.262 + 0.883) / √10 … of ten seeds
    assert seeds_needed(pair, 1) == 10
    (equal,) = all_pairs(exact(a=(0.0, 2.0), b=(2.0, 0.0)))
    assert seeds_needed(equal, 1) is None


def test_no_deviation_is_below_that_of_the_rounding():
    rounded = {
        label: {seed: Observed(one, one, 0.3) for seed in range(3)} for label, one in {"a": 1.0, "b": 2.0}.items()
    }
    (pair,) = all_pairs(rounded)
    assert pair.deviation == pytest.approx(0.3 * math.sqrt(2))
    assert pair.high - pair.mean == pytest.approx(4.302653 * 0.3 * math.sqrt(2 / 3))
