"""Effects in words."""

import math

import pytest

from offbeat.report.metrics import Measure
from offbeat_studies.papers.figures.claim_effects import Group, claim_effects
from offbeat_studies.papers.figures.effect_text import effect_of
from studies.tests.papers.figures.claims import claim, loss_run
from tests.report.example_runs import a_run

LOSS = Measure("loss", higher_is_better=False, is_share=False)
ACCURACY = Measure("accuracy", higher_is_better=True, is_share=True)
SOON, NEVER = (0.9, 0.4, 0.4, 0.4, 0.4), (0.9,) * 5


def effect(made, pairs, measure=LOSS, run=loss_run):
    runs = [
        run(label, values, seed) for seed, pair in enumerate(pairs) for label, values in zip("ab", pair, strict=True)
    ]
    (found,) = claim_effects([made], Group.of(runs))
    return effect_of(found, measure)


def by_values(label, values, seed):
    return loss_run(label, *values, seed=seed)


def test_a_ratio_is_ours_to_the_others_without_the_factor():
    pairs = [((0.2 * 1.1**seed,), (0.4,)) for seed in range(5)]
    found = effect(claim(factor=0.8), pairs, run=by_values)
    assert found.value == pytest.approx(0.5 * 1.1**2, rel=1e-5)
    assert found.allowed == (None, 0.8)
    half_width = 2.776445 * math.log(1.1) * math.sqrt(2.5) / math.sqrt(5)
    assert found.high == pytest.approx(found.value * math.exp(half_width), rel=1e-5)
    assert found.text == f"× {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def test_a_difference_of_accuracies_is_in_points():
    pairs = [((0.5 + seed / 100,), (0.5,)) for seed in range(5)]
    found = effect(claim(relation="at least"), pairs, ACCURACY, lambda label, values, seed: a_run(label, seed, values))
    assert found.value == pytest.approx(0.02)
    assert found.text == "+2.0 [+0.0, +4.0] points"
    assert found.allowed == (0.0, None)


def test_a_narrow_interval_has_more_decimal_places():
    # Half of the interval is 2.776 * sqrt(2.5 / 5) = 1.963 times the step from seed to seed.
    for step, text in ((0.01, "+0.070 [+0.050, +0.090]"), (0.00001, "+0.05002 [+0.05000, +0.05004]")):
        pairs = [((0.45 + step * seed,), (0.4,)) for seed in range(5)]
        assert effect(claim(tolerance=0.1), pairs, run=by_values).text == text
    pairs = [((0.4 * (1 + 0.0001 * seed),), (0.4,)) for seed in range(5)]
    assert effect(claim(), pairs, run=by_values).text == "× 1.0002 [1.0000, 1.0004]"


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([(SOON, NEVER)] * 5, "at most × 0.25"),
        ([(NEVER, SOON)] * 5, "at least × 4.00"),
        ([(NEVER, NEVER)] * 5, ""),
        ([(SOON, NEVER), *[(NEVER, SOON)] * 4], ""),
        ([(SOON, SOON)] * 5, "× 1.00"),
    ],
)
def test_targets_that_were_not_reached_leave_bounds(pairs, text):
    found = effect(claim(quantity="seconds_to_target"), pairs, run=by_values)
    assert found.text == text
    assert (found.value is None) is (text != "× 1.00")
