"""Effects and their tests, beside scipy's and numbers computed by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from offbeat_studies.benchmark.effects import compare
from studies.tests.benchmark.example_curves import WORLD, a_curve

SEEDS = range(1, 11)
NOISE = np.random.default_rng(1).normal(0, 0.01, 10)


def flat(level, steps=5, **costs):
    """Return ten curves that end at a level, each seed with noise of its own."""
    return [a_curve([0.1, *[level + NOISE[seed - 1]] * (steps - 1)], seed, **costs) for seed in SEEDS]


def rising(times, end=0.6):
    """Return a curve for each seed that reaches the target at these evaluations; never for None."""
    return [
        a_curve([0.1 if time is None or step < time else end for step in range(5)], seed)
        for seed, time in zip(SEEDS, times, strict=True)
    ]


def test_seeds_that_the_baseline_does_not_have_have_no_budget_of_client_time():
    found = compare(WORLD, {"fedavg": flat(0.5)[:5], "fast": flat(0.6)})
    standings = found.standings["fast"]
    assert standings["client_seconds"].accuracy.mean == pytest.approx(0.6 + NOISE[:5].mean())
    assert standings["seconds"].accuracy.mean == pytest.approx(0.6 + NOISE.mean())
    assert compare(WORLD, {"fast": flat(0.6)}).standings["fast"]["bytes"].accuracy is None


def test_a_seed_whose_baseline_diverged_has_no_budget_of_client_time():
    diverged = a_curve([0.1, 0.2, math.nan], 1)
    found = compare(WORLD, {"fedavg": [diverged, *flat(0.5)[1:]], "fast": flat(0.6)})
    assert found.standings["fast"]["client_seconds"].accuracy.mean == pytest.approx(0.6 + NOISE[1:].mean())
    assert found.find("fast", "fedavg", "accuracy", "client_seconds").n == 9
    assert found.find("fast", "fedavg", "accuracy", "seconds").n == 10


def test_accuracies_are_compared_seed_by_seed():
    better = [a_curve([0.1, *[0.6 + NOISE[seed - 1] * 2] * 4], seed) for seed in SEEDS]
    found = compare(WORLD, {"fedavg": flat(0.5), "fast": better})
    effect = found.find("fast", "fedavg", "accuracy", "seconds")
    differences = 0.1 + NOISE
    interval = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (effect.mean, effect.low, effect.high) == pytest.approx((differences.mean(), interval.low, interval.high))
    assert effect.n == 10
    assert effect.is_clear
    assert effect.is_better
    assert found.best["seconds"] == "fast"


def test_ratios_of_times_are_geometric():
    times, others = [1, 1, 2, 1, 2, 1, 1, 2, 1, 1], [4, 3, 4, 4, 4, 3, 4, 4, 4, 4]
    found = compare(WORLD, {"fedavg": rising(others), "fast": rising(times)})
    effect = found.find("fast", "fedavg", "to_target", "bytes")
    logs = np.log(np.array(times) / np.array(others))
    interval = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    expected = np.exp([logs.mean(), interval.low, interval.high])
    assert (effect.mean, effect.low, effect.high) == pytest.approx(tuple(expected))
    assert found.standings["fast"]["seconds"].to_target.mean == pytest.approx(13.0)


def test_a_missed_target_bounds_the_ratio():
    # FedAvg never arrives: its 40 s are a lower bound.
    times = [1, 1, 2, 1, 2, 1, 1, 2, 1, 1]
    found = compare(WORLD, {"fedavg": rising([None] * 10), "fast": rising(times)})
    effect = found.find("fast", "fedavg", "to_target", "seconds")
    logs = np.log(np.array(times) / 4)
    assert (effect.mean, effect.low, effect.is_better) == (None, 0.0, True)
    assert effect.size == effect.high == pytest.approx(np.exp(logs.mean()))
    ps = [one.p for one in found.effects if one.measure == "to_target"]
    assert ps == pytest.approx([6 * stats.ttest_1samp(logs, 0).pvalue] * 3)  # Holm: these three of six are the least


def test_a_ratio_of_which_nothing_is_known_in_one_seed_has_no_bound():
    times = [1, 1, 2, 1, 2, 1, 1, 2, 1, None]
    found = compare(WORLD, {"fedavg": rising([None] * 10), "fast": rising(times)})
    effect = found.find("fast", "fedavg", "to_target", "seconds")
    assert (effect.mean, effect.low, effect.high, effect.is_better) == (None, 0.0, math.inf, True)
    assert effect.p >= stats.binomtest(9, 10).pvalue
    standing = found.standings["fast"]["seconds"]
    assert (standing.reached, standing.seeds, standing.to_target) == (9, 10, None)


def test_a_run_that_misses_the_target_hides_how_slow_the_algorithm_is():
    # Nine runs take a third of the time. The tenth never arrives: it may have taken any time.
    found = compare(WORLD, {"fedavg": rising([3] * 10), "fast": rising([1, 2, *[1] * 7, None])})
    effect = found.find("fast", "fedavg", "to_target", "seconds")
    assert effect.high == math.inf


def test_a_diverged_run_would_never_have_reached_the_target():
    wild = [a_curve([0.1, math.nan], seed) for seed in SEEDS]
    found = compare(WORLD, {"fedavg": rising([4, 3] * 5), "wild": wild})
    effect = found.find("wild", "fedavg", "to_target", "seconds")
    assert (effect.low, effect.is_better) == (math.inf, False)
    once = [a_curve([0.1, math.nan], 1), *rising([4] * 10)[1:]]
    effect = compare(WORLD, {"fedavg": once, "fast": rising([1, 2] * 5)}).find("fast", "fedavg", "to_target", "seconds")
    assert (effect.mean, effect.low, effect.is_better, effect.n) == (None, 0.0, True, 10)
    assert 0 < effect.p < 1
    assert compare(WORLD, {"fedavg": wild, "wild": wild}).find("wild", "fedavg", "to_target", "seconds") is None


def test_the_other_side_is_censored_the_same_way():
    found = compare(WORLD, {"fedavg": rising([2] * 10), "slow": rising([None] * 5 + [4] * 5)})
    effect = found.find("slow", "fedavg", "to_target", "seconds")
    assert (effect.low, effect.high) == (pytest.approx(2.0), math.inf)
    assert not effect.is_better
    holms_factor = len(found.effects) - sum(one.p < effect.p for one in found.effects)
    assert effect.p == pytest.approx(2 * 0.5**10 * holms_factor)  # equal bounds: their sign


def test_nothing_is_compared_where_neither_arrives():
    found = compare(WORLD, {"fedavg": rising([None] * 10), "slow": rising([None] * 10)})
    assert found.find("slow", "fedavg", "to_target", "seconds") is None


def test_a_target_that_the_untrained_model_has_reached_is_not_compared():
    found = compare(WORLD, {"fedavg": flat(0.6), "fast": rising([0, *[1] * 9])})
    assert found.find("fast", "fedavg", "to_target", "seconds") is None
    assert found.find("fast", "fedavg", "accuracy", "seconds") is not None


def test_an_algorithm_that_did_not_spend_the_budget_is_not_compared_there():
    thrifty = flat(0.6, size=100.0)
    found = compare(WORLD, {"fedavg": flat(0.5), "thrifty": thrifty})
    assert found.find("thrifty", "fedavg", "accuracy", "bytes") is None
    assert found.standings["thrifty"]["bytes"].accuracy is None
    assert found.best["bytes"] == "fedavg"
    assert found.best["seconds"] == "thrifty"


def test_budgets_are_three_quarters_of_what_fedavg_spent_with_the_same_seed():
    # FedAvg spends 200 client seconds and 4,000 bytes in the first run, twice as much in the second.
    baseline = [a_curve([0.1, 0.2, 0.3, 0.4, 0.5], 1), a_curve([0.1, 0.2, 0.3, 0.4, 0.5], 2, 10.0, 100.0, 2000.0)]
    other = [a_curve([0.0, 1.0], seed, 40.0, 300.0, 6000.0) for seed in (1, 2)]
    found = compare(WORLD, {"fedavg": baseline, "other": other})
    # The means over the last fifth: of 150 client seconds and 3,000 bytes, then of 300 and 6,000.
    assert found.standings["other"]["client_seconds"].accuracy.mean == pytest.approx((0.45 + 0.9) / 2)
    assert found.standings["other"]["bytes"].accuracy.mean == pytest.approx((0.45 + 0.9) / 2)
    assert found.standings["fedavg"]["bytes"].accuracy.mean == pytest.approx(0.1 + 0.1 * 0.9 * 3)
    assert found.find("other", "fedavg", "accuracy", "bytes").mean == pytest.approx(0.675 - 0.37)
    assert found.find("other", "fedavg", "accuracy", "seconds").mean == pytest.approx(0.9 - (0.1 + 0.1 * 0.9 * 4))


def test_only_seeds_that_both_have_run_are_compared():
    found = compare(WORLD, {"fedavg": flat(0.5), "few": flat(0.6)[:4]})
    assert found.find("few", "fedavg", "accuracy", "seconds").n == 4


def test_the_best_is_chosen_by_the_seeds_that_all_have_run():
    easy = sorted(SEEDS, key=lambda seed: -NOISE[seed - 1])[:2]
    lucky = [curve for curve in flat(0.599) if curve.seed in easy]  # its mean is the highest
    found = compare(WORLD, {"fedavg": flat(0.5), "steady": flat(0.6), "lucky": lucky})
    assert found.standings["lucky"]["seconds"].accuracy.mean > found.standings["steady"]["seconds"].accuracy.mean
    assert found.best["seconds"] == "steady"


def test_holms_correction_is_over_all_effects_of_the_world():
    curves = {"fedavg": flat(0.5), "a": flat(0.5), "b": flat(0.5)}
    wide = np.array([0.05, -0.02, 0.06, 0.01, 0.03, -0.01, 0.04, 0.02, 0.0, 0.03])
    curves["a"] = [a_curve([0.1, *[0.5 + NOISE[s - 1] + wide[s - 1]] * 4], s) for s in SEEDS]
    found = compare(WORLD, curves)
    effect = found.find("a", "fedavg", "accuracy", "seconds")
    alone = stats.ttest_1samp(wide, 0).pvalue
    # a and b against FedAvg twice, b against a once, at three costs. Those that are certain, p = 0, come before.
    assert len(found.effects) == 3 * (2 * 2 + 1)
    smaller = sum(one.p < effect.p for one in found.effects)
    assert alone < 0.05 < effect.p == pytest.approx((15 - smaller) * alone)


def test_those_that_do_not_differ_from_the_best_are_named():
    same = [a_curve([0.1, *[0.7 - NOISE[seed - 1]] * 4], seed) for seed in SEEDS]
    found = compare(WORLD, {"fedavg": flat(0.5), "best": flat(0.7), "same": same, "worse": flat(0.4)})
    names = {found.best["seconds"], *found.not_worse("seconds")}
    assert names == {"best", "same"}
    assert compare(WORLD, {"fedavg": same, "best": flat(0.7)}).not_worse("seconds") == ["fedavg"]


def test_a_diverged_run_is_counted():
    curves = {"fedavg": flat(0.5), "wild": [a_curve([0.1, math.nan], seed) for seed in SEEDS]}
    found = compare(WORLD, curves)
    assert found.standings["wild"]["seconds"].diverged == 10
    assert found.find("wild", "fedavg", "accuracy", "seconds").mean < -0.4


def test_without_the_baseline_only_the_best_is_a_comparison():
    found = compare(WORLD, {"a": flat(0.5), "b": [a_curve([0.1] * 5, seed) for seed in SEEDS]})
    assert {(one.label, one.than) for one in found.effects} == {("b", "a")}
