"""Accuracy at equal budgets and costs to a target, by hand."""

import math

import numpy as np
import pytest

from offbeat.statistics.hypothesis_tests import Range
from offbeat_studies.benchmark.measures import Curve, accuracy_at, cost_to
from studies.tests.benchmark.example_curves import a_curve

CURVE = a_curve([0.1, 0.2, 0.4, 0.6, 0.5])


def test_accuracy_at_a_budget_is_the_mean_over_its_last_fifth():
    # Of 40 s from 32 to 40 s: a line from 0.58 to 0.5.
    assert accuracy_at(CURVE, "seconds", 40.0) == pytest.approx(0.54)
    # Of 100 client seconds from 80 (0.2 + 0.6 · 0.2) to 100 (0.4).
    assert accuracy_at(CURVE, "client_seconds", 100.0) == pytest.approx((0.32 + 0.4) / 2)
    # Of 3,500 bytes from 2,800 (0.56) by 3,000 (0.6) to 3,500 (0.55).
    expected = (200 * (0.56 + 0.6) / 2 + 500 * (0.6 + 0.55) / 2) / 700
    assert accuracy_at(CURVE, "bytes", 3500.0) == pytest.approx(expected)


def test_a_run_that_did_not_spend_the_budget_has_no_accuracy_there():
    assert math.isnan(accuracy_at(CURVE, "bytes", 4001.0))


def test_bytes_may_stand_still_between_evaluations():
    curve = Curve(1, {"bytes": np.array([0.0, 100.0, 100.0, 200.0])}, np.array([0.0, 0.2, 0.4, 0.6]))
    assert accuracy_at(curve, "bytes", 200.0) == pytest.approx((0.52 + 0.6) / 2)


def test_a_run_that_diverged_counts_as_zero():
    assert accuracy_at(a_curve([0.1, 0.6, math.nan]), "bytes", 4000.0) == 0.0


def test_cost_to_a_target_is_that_of_the_first_evaluation_there():
    assert cost_to(CURVE, "seconds", 0.6) == Range(30.0, 30.0)
    assert cost_to(CURVE, "bytes", 0.15) == Range(1000.0, 1000.0)


def test_a_run_that_missed_the_target_is_censored_at_its_end():
    assert cost_to(CURVE, "client_seconds", 0.7) == Range(200.0, math.inf)
    assert cost_to(a_curve([0.1, math.nan]), "seconds", 0.7) == Range(math.inf, math.inf)  # it diverged
