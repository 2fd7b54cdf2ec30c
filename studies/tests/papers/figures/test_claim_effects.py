"""The two sides of a claim, seed against seed, and their test."""

import math

import pytest
from scipy import stats

from offbeat.statistics.hypothesis_tests import Range
from offbeat_studies.papers.figures.claim_effects import Group, claim_effects
from studies.tests.papers.figures.claims import LOSS, claim, loss_run
from tests.report.example_runs import a_run

INF = math.inf


def runs(*pairs, labels=("a", "b")):
    """Return runs over seeds, each with the values of a and of b."""
    return [
        loss_run(label, *values, seed=seed)
        for seed, pair in enumerate(pairs)
        for label, values in zip(labels, pair, strict=True)
    ]


def effect(made, *pairs, **options):
    """Return the effect of a claim over seeds."""
    (found,) = claim_effects([made], Group.of(runs(*pairs)), **options)
    return found


LEFT, RIGHT = [0.4, 0.45, 0.38, 0.5, 0.41], [0.5, 0.52, 0.55, 0.51, 0.49]
FINALS = [((m,), (r,)) for m, r in zip(LEFT, RIGHT, strict=True)]


def test_losses_are_compared_by_the_logarithm_of_their_ratio():
    found = effect(claim(factor=0.9), *FINALS)
    logs = [math.log(m / (0.9 * r)) for m, r in zip(LEFT, RIGHT, strict=True)]
    assert found.is_ratio
    assert found.tested.p == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    assert found.tested.effect == pytest.approx(sum(logs) / 5)
    assert (found.ours, found.other) == (LEFT, [pytest.approx(0.9 * r) for r in RIGHT])


@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        ({"relation": "at most", "tolerance": 0.1}, -INF, 0.1),
        ({"relation": "at least", "tolerance": 0.1}, -0.1, INF),
        ({"relation": "close to", "tolerance": 0.05}, -0.05, 0.05),
    ],
)
def test_a_tolerance_is_in_the_unit_of_the_measure(changes, low, high):
    found = effect(claim(factor=2.0, **changes), *FINALS)
    assert not found.is_ratio
    assert found.allowed == (low, high)
    assert [pair.low for pair in found.pairs] == pytest.approx([m - 2 * r for m, r in zip(LEFT, RIGHT, strict=True)])


@pytest.mark.parametrize(("relation", "low", "high"), [("at most", -INF, -0.05), ("at least", 0.05, INF)])
def test_a_margin_is_the_least_difference(relation, low, high):
    found = effect(claim(relation=relation, margin=0.05), *FINALS)
    assert found.allowed == (low, high)
    assert [pair.low for pair in found.pairs] == pytest.approx([m - r for m, r in zip(LEFT, RIGHT, strict=True)])
    # By hand: −0.086 on average, which is below −0.05.
    assert found.tested.is_for is (relation == "at most")


def test_accuracies_are_compared_by_their_difference_and_their_swings_by_their_ratio():
    shares = Group.of(
        [a_run(label, seed, (0.2, value)) for seed in range(5) for label, value in (("a", 0.6), ("b", 0.5))]
    )
    claims = [claim(), claim(quantity="swing", last_seconds=200.0), claim(factor=0.9)]
    final, swing, share = claim_effects(claims, shares)
    assert [pair.low for pair in final.pairs] == pytest.approx([0.1] * 5)
    assert [pair.low for pair in share.pairs] == pytest.approx([math.log(0.6 / (0.9 * 0.5))] * 5)  # a share of b's
    assert [pair.low for pair in swing.pairs] == pytest.approx([math.log(0.4 / 0.3)] * 5)


def test_a_number_is_compared_with_each_seed():
    found = effect(claim(than=None, value=0.3, factor=2.0), *FINALS)
    assert [pair.low for pair in found.pairs] == pytest.approx([math.log(m / 0.6) for m in LEFT])


SOON, LATE, NEVER = (0.9, 0.4, 0.4, 0.4, 0.4), (0.9, 0.9, 0.9, 0.9, 0.4), (0.9,) * 5  # after 100 s, 400 s; by 400 s not


@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        (SOON, LATE, math.log(1 / 4), math.log(1 / 4)),
        (SOON, NEVER, -INF, math.log(1 / 4)),
        (NEVER, SOON, math.log(4), INF),
        (NEVER, NEVER, -INF, INF),
        ((0.9, math.nan), SOON, INF, INF),  # a diverged run never reaches the target
        ((0.9, math.nan), (0.9, math.nan), -INF, INF),
    ],
)
def test_a_target_not_reached_costs_more_than_the_run(a, b, low, high):
    found = effect(claim(quantity="seconds_to_target"), *[(a, b)] * 5)
    assert found.pairs == [pytest.approx((low, high))] * 5


def test_a_target_not_reached_is_counted_and_not_dropped():
    pairs = [(SOON, LATE), (SOON, LATE), (LATE, SOON), (SOON, NEVER), (SOON, NEVER)]
    found = effect(claim(quantity="seconds_to_target"), *pairs)
    assert (found.tested.method, found.tested.effect) == ("paired t of bounds", None)
    highs = [math.log(ratio) for ratio in (1 / 4, 1 / 4, 4, 1 / 4, 1 / 4)]
    assert found.tested.p_for == pytest.approx(stats.ttest_1samp(highs, 0.0, alternative="less").pvalue)
    assert found.bounds == pytest.approx((-INF, math.log(1 / 4) * 3 / 5))
    assert effect(claim(quantity="seconds_to_target"), *[(SOON, LATE)] * 4, (LATE, SOON)).tested.method == "paired t"


@pytest.mark.parametrize("missed", [NEVER, (0.9, math.nan)])
def test_without_a_bound_on_either_side_nothing_is_known(missed):
    pairs = [(SOON, LATE)] * 3
    found = effect(claim(quantity="seconds_to_target"), *pairs, (SOON, missed), (missed, SOON))
    assert found.bounds == (-INF, INF)
    assert effect(claim(quantity="seconds_to_target"), *pairs, (missed, SOON)).bounds.high == INF


def test_a_claim_may_compare_with_the_average_over_several_algorithms():
    def mean_effect(*curves):
        made = claim(quantity="seconds_to_target", than=None, than_mean=["b", "c"], factor=0.5)
        (found,) = claim_effects([made], Group.of(runs(*[curves] * 5, labels=("a", "b", "c"))))
        return found

    found = mean_effect(SOON, LATE, SOON)
    assert [pair.low for pair in found.pairs] == pytest.approx([math.log((100 / 400 + 100 / 100) / 2 / 0.5)] * 5)
    assert len(found.runs) == 15
    # c needs more than 400 s, so a's ratio to it is between 0 and 1/4.
    assert (
        mean_effect(SOON, LATE, NEVER).pairs
        == [pytest.approx((math.log((1 / 4 + 0) / 2 / 0.5), math.log((1 / 4 + 1 / 4) / 2 / 0.5)))] * 5
    )
    assert mean_effect(SOON, (0.9, math.nan), (0.9, math.nan)).pairs == [Range(-INF, -INF)] * 5
    at_once = (0.0, 0.0, 0.0, 0.0, 0.0)  # the untrained model is good enough
    assert mean_effect(SOON, at_once, LATE).pairs == [Range(INF, INF)] * 5


def test_a_target_not_reached_is_infinite_beside_a_number():
    never = claim(quantity="seconds_to_target", relation="at least", than=None, value=600.0)
    assert effect(never, *[(NEVER, SOON)] * 5).pairs == [Range(INF, INF)] * 5
    assert effect(never, *[(NEVER, SOON)] * 5).tested.is_for
    assert not effect(never, *[(SOON, SOON)] * 5).obstacle.startswith("fewer")


@pytest.mark.parametrize(
    ("changes", "a"),
    [
        ({}, (math.nan,)),
        ({"quantity": "swing", "last_seconds": 200.0}, (0.5, INF, 0.5)),
        ({"quantity": "after_updates", "updates": 20}, (0.9, 0.5, 0.1)),  # counted: 0, 1, 2
    ],
)
def test_a_number_that_a_run_does_not_have_is_unknown(changes, a):
    found = effect(claim(**changes), *[(a, a)] * 5)
    assert found.pairs == [Range(-INF, INF)] * 5
    assert found.tested.p == 1.0
    assert found.obstacle == "fewer than 6 seeds, where only signs are known"


def test_what_cannot_be_tested_has_a_reason():
    assert effect(claim(), *FINALS).obstacle == ""
    assert effect(claim(), *FINALS[:4]).obstacle == "fewer than 5 seeds"
    assert effect(claim(), *FINALS[:1]).tested is None
    alike = effect(claim(), *[((0.25,), (0.5,))] * 5)
    assert (alike.tested, alike.obstacle) == (None, "all seeds give the same difference")


def test_a_claim_on_a_label_at_the_edge_of_its_tuning_is_not_tested():
    made = [claim(), claim(than=None, value=0.3)]
    found = claim_effects(made, Group.of(runs(*FINALS), edges=["b"]))
    assert [one.obstacle for one in found] == ["tuned to the edge of the tried values: b", ""]


@pytest.mark.parametrize(("best", "is_near"), [(0.12, True), (0.16, False)])
def test_a_claim_at_chance_level_is_not_tested(best, is_near):
    shares = [
        a_run(label, seed, (0.1, value + seed / 1e4, 0.1))
        for seed in range(5)
        for label, value in (("a", 0.11), ("b", best))
    ]
    swing = claim(quantity="swing", last_seconds=200.0)
    (found,) = claim_effects([swing], Group.of(shares), chance=0.1)
    assert found.obstacle == ("all stay near 10 %, the accuracy of guessing" if is_near else "")
    assert claim_effects([swing], Group.of(shares))[0].obstacle == ""


def test_a_claim_may_compare_with_another_panel():
    own = Group.of([loss_run("a", 0.4), loss_run("b", 0.1)])
    beside = {"x": Group.of([loss_run("b", 0.5)], edges=["b"]), "y": Group.of([loss_run("b", 0.3)])}
    made = [claim(than_panel="x"), claim(than_panel="y"), claim()]
    found = claim_effects(made, own, beside)
    assert [one.other for one in found] == [[0.5], [0.3], [0.1]]
    assert [len(one.runs) for one in found] == [2, 2, 2]


def test_a_claim_may_compare_differences():
    own = Group.of(
        [loss_run("a", 0.9), loss_run("a2", 0.5), loss_run("b", 0.7), loss_run("b2", 0.2), loss_run("nan", math.nan)]
    )
    gap = {"less": "a2", "than_less": "b2"}  # 0.4 and 0.5
    made = [claim(factor=0.7, **gap), claim(less="a2", than=None, value=0.41), claim(less="nan", than_less="b2")]
    first, second, third = claim_effects(made, own)
    assert (first.ours, first.other) == ([pytest.approx(0.4)], [pytest.approx(0.35)])
    assert second.pairs == [pytest.approx((-0.01, -0.01))]
    assert third.pairs == [Range(-INF, INF)]
    # In another panel both are its own.
    beside = {"x": Group.of([loss_run("b", 0.7), loss_run("b2", 0.6), loss_run("a2", 9.0)])}
    (other,) = claim_effects([claim(than_panel="x", **gap)], own, beside)
    assert other.other == [pytest.approx(0.1)]


def test_the_measure_of_a_claim_decides():
    assert LOSS["metrics"] == []
    shares = Group.of([a_run(label, seed, (0.2, 0.5)) for seed in range(5) for label in "ab"])
    assert claim_effects([claim(measure="loss")], shares)[0].is_ratio
