import math
from dataclasses import replace

import pytest

from offbeat_studies.papers.figures.quantities import quantity
from studies.tests.papers.figures.claims import LOSS, claim, loss_run
from tests.report.example_runs import a_run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("final", 0.4),
        ("best", 0.2),
        ("seconds_to_target", 200.0),
        ("versions_to_target", 2.0),
        ("bytes_to_target", 4.0),
        ("bytes_up_to_target", 2.0),
    ],
)
def test_quantities(name, value):
    assert quantity(claim(quantity=name), loss_run("a", 0.9, 0.6, 0.2, 0.3, 0.4)) == value


def test_quantities_of_the_end():
    run = loss_run("a", 0.9, 0.6, 0.2, 0.3, 0.4)  # at 0, 100, … 400 seconds
    assert quantity(claim(quantity="tail", last_seconds=200.0), run) == pytest.approx(0.3)
    assert quantity(claim(quantity="swing", last_seconds=200.0), run) == pytest.approx(0.2)
    assert quantity(claim(quantity="swing", last_seconds=300.0), run) == pytest.approx(0.4)
    assert quantity(claim(quantity="tail", last_share=0.25), run) == pytest.approx(0.35)
    assert quantity(claim(quantity="swing", last_share=0.75), run) == pytest.approx(0.4)


def test_updates_to_target_counts_all_visits():
    run = a_run("a", 0, (0.9, 0.4), totals={"counted": 5, "unused": 2, "lost": 1}, evaluate=LOSS)
    assert quantity(claim(quantity="updates_to_target"), run) == 8.0


def test_the_cost_of_a_target_never_reached_is_infinite():
    assert quantity(claim(quantity="seconds_to_target"), loss_run("a", 0.9, 0.8)) == math.inf


def test_after_updates_is_the_mean_over_the_last_tenth_of_them():
    run = a_run("a", 0, [0.9] * 9 + [0.5, 0.3, 0.1], evaluate=LOSS)  # counted: 0, 1, … 11
    assert quantity(claim(quantity="after_updates", updates=10), run) == pytest.approx(0.4)
    assert math.isnan(quantity(claim(quantity="after_updates", updates=20), run))
    # Where it was not measured, it is on the line between two measurements.
    short = a_run("a", 0, (0.9, 0.5, 0.1), evaluate=LOSS)
    sparse = replace(short, history=short.history | {"counted": 100 * short.history["counted"]})
    assert quantity(claim(quantity="after_updates", updates=150), sparse) == pytest.approx(0.3)
    assert quantity(claim(quantity="after_updates", updates=205), sparse) == pytest.approx(0.1)
    assert math.isnan(quantity(claim(quantity="after_updates", updates=230), sparse))


def test_a_claim_may_name_another_measure():
    run = a_run("a", 0, (0.1, 0.8), evaluate={"metrics": ["accuracy"]})
    assert quantity(claim(), run) == 0.8
    assert quantity(claim(measure="loss"), run) == 1.0
