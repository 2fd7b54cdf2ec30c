import math

import numpy as np
import pytest

from offbeat_studies.papers.displacement.curve import Curve, censored_fit, lowest_point


def test_without_censored_values_it_is_least_squares():
    design = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    found = censored_fit(design, np.array([1.0, 3.0, 5.0]), np.zeros(3, bool))
    assert found == pytest.approx([1.0, 2.0])


def test_censored_values_count_as_bounds():
    random = np.random.default_rng(1)
    x = np.linspace(0, 1, 2000)
    values = 2 * x + random.normal(0, 0.2, len(x))
    is_censored = values > 1
    design = np.stack([np.ones_like(x), x], axis=1)
    cut = np.minimum(values, 1.0)
    assert censored_fit(design, cut, is_censored) == pytest.approx([0, 2], abs=0.05)
    assert abs(np.linalg.lstsq(design, cut, rcond=None)[0][1] - 2) > 0.5  # taken for measured, they mislead
    assert abs(censored_fit(design[~is_censored], values[~is_censored], is_censored[~is_censored])[1] - 2) > 0.2


def test_bounds_far_below_the_line_change_nothing():
    design = np.stack([np.ones(30), np.linspace(0, 1, 30)], axis=1)
    values = 100 + 50 * design[:, 1]
    is_censored = np.arange(30) % 3 == 0
    cut = np.where(is_censored, 0.0, values)
    assert censored_fit(design, cut, is_censored) == pytest.approx([100, 50], rel=1e-3)


def test_a_curve_returns_what_it_was_fitted_to():
    x = np.tile(np.geomspace(0.25, 3, 9), 4)
    delays = np.repeat([4.0, 6.0, 12.0, 30.0], 9)
    uploads = delays * np.exp(2 + 0.3 * np.log(x) ** 2 + 0.1 * np.log(delays) * np.log(x))
    curve = Curve.fit(x, delays, np.log(uploads), np.zeros(36, bool))
    expected = math.log(20) + 2 + 0.3 * math.log(0.7) ** 2 + 0.1 * math.log(20) * math.log(0.7)
    assert curve.log_uploads(0.7, 20.0) == pytest.approx(expected)


def test_the_lowest_point_of_a_parabola():
    at = [0.0, 1.0, 2.0, 3.0]
    whole = [False] * 4
    assert lowest_point(at, [(x - 1.25) ** 2 for x in at], whole) == pytest.approx(1.25)
    assert lowest_point(at, [(x - 9.0) ** 2 for x in at], whole) == 3.0
    assert lowest_point(at, [-((x - 1.0) ** 2) for x in at], whole) == 3.0
