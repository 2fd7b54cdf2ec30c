"""The tests of claims, beside scipy's and numbers computed by hand."""

import math

import pytest
from scipy import stats

from offbeat.statistics.hypothesis_tests import Range, bounded_test, holm, paired_t, sign_test, t_test

INF = math.inf
DIFFERENCES = [-0.31, -0.12, -0.45, 0.08, -0.27, -0.36, -0.02, -0.19, -0.4, -0.15]


def approx(value):
    return pytest.approx(value, rel=1e-9)


def test_one_bound_is_scipys_t_test():
    found = paired_t(DIFFERENCES, Range(-INF, -0.1))
    below = stats.ttest_1samp(DIFFERENCES, -0.1, alternative="less")
    above = stats.ttest_1samp(DIFFERENCES, -0.1, alternative="greater")
    assert (found.p_for, found.p_against) == (approx(below.pvalue), approx(above.pvalue))
    assert found.p == approx(stats.ttest_1samp(DIFFERENCES, -0.1).pvalue)
    interval = stats.ttest_1samp(DIFFERENCES, 0).confidence_interval(0.95)
    assert (found.low, found.high) == (approx(interval.low), approx(interval.high))
    assert found.effect == approx(sum(DIFFERENCES) / 10)
    assert found.is_for


def test_the_other_direction_is_the_mirror_image():
    found = paired_t(DIFFERENCES, Range(-INF, -0.1))
    mirrored = paired_t([-value for value in DIFFERENCES], Range(0.1, INF))
    assert (mirrored.p_for, mirrored.p_against) == (approx(found.p_for), approx(found.p_against))
    against = paired_t(DIFFERENCES, Range(-0.1, INF))
    assert (against.p_for, against.p_against, against.is_for) == (approx(found.p_against), approx(found.p_for), False)


def test_pairs_are_scipys_paired_test():
    ours, others = [3.0, 4.5, 2.5, 6.0, 5.0], [4.0, 5.0, 4.5, 6.5, 7.0]
    logs = [math.log(m / r) for m, r in zip(ours, others, strict=True)]
    expected = stats.ttest_rel([math.log(m) for m in ours], [math.log(r) for r in others])
    assert paired_t(logs, Range(-INF, 0.0)).p == approx(expected.pvalue)


@pytest.mark.parametrize(("tolerance", "is_for"), [(0.5, True), (0.1, False)])
def test_two_bounds_are_two_one_sided_tests(tolerance, is_for):
    found = paired_t(DIFFERENCES, Range(-tolerance, tolerance))
    lower = stats.ttest_1samp(DIFFERENCES, -tolerance, alternative="greater").pvalue
    upper = stats.ttest_1samp(DIFFERENCES, tolerance, alternative="less").pvalue
    assert found.p_for == approx(max(lower, upper))
    assert found.p_against == approx(stats.ttest_1samp(DIFFERENCES, -tolerance, alternative="less").pvalue)
    assert found.is_for is is_for


def test_a_difference_that_is_not_shown_is_not_equivalence():
    found = paired_t([-3.0, 3.0, -2.0, 2.5, 0.1], Range(-1.0, 1.0))
    assert found.p > 0.3


@pytest.mark.parametrize("differences", [[0.5], [0.2, 0.2, 0.2], [0.9 - 0.8, 0.8 - 0.7, 0.6 - 0.5]])
def test_differences_must_vary(differences):
    with pytest.raises(ValueError, match="must vary"):
        paired_t(differences, Range(-INF, 0.0))


def test_five_signs_are_never_enough():
    # By hand: (1/2)^5 = 1/32 in one direction.
    found = sign_test([Range(-2.0, -1.0)] * 5, Range(-INF, 0.0))
    assert (found.p_for, found.p_against, found.p) == (1 / 32, 1.0, 1 / 16)


def test_the_sign_test_is_scipys_binomial_test():
    pairs = [*[Range(-3.0, -1.0)] * 8, Range(0.5, INF), Range(-1.0, 1.0)]  # the last one is open
    found = sign_test(pairs, Range(-INF, 0.0))
    assert found.p_for == approx(stats.binomtest(8, 10, alternative="greater").pvalue)
    assert found.p_against == approx(stats.binomtest(1, 10, alternative="greater").pvalue)
    assert found.effect is None


LOWS = [0.4, 0.9, 0.7, 0.6, 1.1]
AT_LEAST = [Range(0.4, INF), Range(0.9, 0.9), Range(0.7, 2.0), Range(0.6, INF), Range(1.1, 1.1)]


def p_greater(values, limit):
    return approx(stats.ttest_1samp(values, limit, alternative="greater").pvalue)


def test_a_claim_holds_if_it_holds_for_the_worst_bounds():
    found = bounded_test(AT_LEAST, Range(0.2, INF))
    assert (found.p_for, found.p_against) == (p_greater(LOWS, 0.2), 1.0)
    mirrored = bounded_test([Range(-pair.high, -pair.low) for pair in AT_LEAST], Range(-INF, -0.2))
    assert (mirrored.p_for, mirrored.p_against) == (approx(found.p_for), 1.0)


def test_a_hypothesis_without_bounds_is_tested_by_signs():
    # One of the five is known to be at most 1; the others have no upper bound, or one above 1.
    found = bounded_test(AT_LEAST, Range(-INF, 1.0))
    assert found.p_for == approx(stats.binomtest(1, 5, alternative="greater").pvalue)
    assert found.p_against == p_greater(LOWS, 1.0)
    # Signs count on one side of a range alone: three are known to be below 1.3, one of them also below 0.45.
    found = bounded_test([Range(0.4, 0.4), *AT_LEAST[1:]], Range(0.45, 1.3))
    assert found.p_for == approx(stats.binomtest(3, 5, alternative="greater").pvalue)


def test_a_claim_fails_if_it_fails_for_the_best_bounds():
    found = bounded_test(AT_LEAST, Range(-INF, 0.2))
    assert (found.p_for, found.p_against, found.is_for) == (1.0, p_greater(LOWS, 0.2), False)


def test_bounds_on_the_wrong_side_decide_nothing():
    assert bounded_test(AT_LEAST, Range(-INF, 1.5)).p > 0.9


def test_equivalence_of_bounds_needs_both_sides():
    pairs = [Range(value, value + 0.1) for value in LOWS]
    found = bounded_test(pairs, Range(0.3, 1.3))
    highs = stats.ttest_1samp([pair.high for pair in pairs], 1.3, alternative="less").pvalue
    assert found.p_for == approx(max(stats.ttest_1samp(LOWS, 0.3, alternative="greater").pvalue, highs))
    signs = stats.binomtest(2, 5, alternative="greater").pvalue  # two are known to be below 1.3
    assert bounded_test(AT_LEAST, Range(0.3, 1.3)).p_for == approx(signs)
    assert bounded_test(AT_LEAST, Range(-1.0, 0.1)).p_against == p_greater(LOWS, 0.1)


@pytest.mark.parametrize("bounds", [Range(0.5, INF), Range(INF, INF), Range(-INF, INF)])
def test_without_bounds_to_test_it_is_the_sign_test(bounds):
    allowed = Range(0.2, INF)
    assert bounded_test([bounds] * 5, allowed) == sign_test([bounds] * 5, allowed)


def test_differences_below_and_above_a_range_do_not_count_together():
    found = sign_test([*[Range(-3.0, -2.0)] * 5, *[Range(2.0, INF)] * 5], Range(-1.0, 1.0))
    assert found.p_against == approx(stats.binomtest(5, 10, alternative="greater").pvalue)


def test_a_mean_of_many_runs():
    found = t_test(0.8, 0.1, 9, Range(-INF, 1.0))
    assert found.p_for == approx(stats.t.sf(2.0, 9))
    assert (found.low, found.high) == tuple(map(approx, stats.t.interval(0.95, 9, 0.8, 0.1)))


def test_without_noise_a_number_is_exact():
    inside, outside = t_test(0.8, 0.0, 9, Range(-INF, 1.0)), t_test(1.2, 0.0, 9, Range(-INF, 1.0))
    assert (inside.p_for, inside.p_against, inside.method) == (0.0, 1.0, "exact")
    assert (outside.p_for, outside.p_against) == (1.0, 0.0)


def test_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.04: times 4, 3, 2, 1 are 0.04, 0.06, 0.06, 0.04, and the last is raised to 0.06.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_an_adjusted_p_value_is_at_most_1():
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.03]) == [0.03]
