import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.theory import fedluck_bound, fedluck_bound_as_printed, fedluck_objective, staleness_in_periods

SETTING = {
    "rounds": 10,
    "lr": 0.5,
    "server_lr": 0.5,
    "steps": 2,
    "compression": 0.5,
    "max_staleness": 1,
    "smoothness": 1,
    "initial_error": 5,
    "variance": 1,
    "heterogeneity": 1,
    "gradient_bound": 1,
    "arrivals_every_period": True,
}


@pytest.mark.parametrize(("seconds", "staleness"), [(0.2, 0), (1, 0), (1.001, 1), (2, 1), (3.5, 3)])
def test_staleness_in_periods_by_hand(seconds, staleness):
    assert staleness_in_periods(visit_seconds=seconds, period=1) == staleness
    assert staleness_in_periods(visit_seconds=4 * seconds, period=4) == staleness


@pytest.mark.parametrize("name", ["visit_seconds", "period"])
def test_a_visit_and_a_period_take_time(name):
    with pytest.raises(ValueError, match=f"{name} must be a finite number greater than 0, got 0"):
        staleness_in_periods(**{"visit_seconds": 1, "period": 1, name: 0})


def test_objective_by_hand():
    setting = {"steps": 2, "step_seconds": 1, "upload_seconds": 4, "period": 2}
    # (2·½ + ½·2)² · 1.5 + 1 over 2·½
    assert fedluck_objective(compression=0.5, **setting, compression_exponent=1) == pytest.approx(7)
    # (2·½ + ¼·2)² · 1.75 + 1 over 2·√¼
    assert fedluck_objective(compression=0.25, **setting) == pytest.approx(4.9375)


def test_mended_bound_by_hand():
    # η_l k = 1, Q_l = 1, B_1 = 54, B_2 = 12: 10/5 + (27 + 12) + 4·(2·4·1.5 + 1)·54
    bound = fedluck_bound(**SETTING)
    assert bound.value == pytest.approx(2 + 39 + 2808)
    assert bound.holds


def test_mended_bound_is_divided_by_its_own_q():
    # η_l k = 0.8, Q_l = 1 − 6·0.04
    value = fedluck_bound(**{**SETTING, "lr": 0.4}).value
    assert value == pytest.approx((2 + 0.64 * 39 + 0.16 * 16 * 13 * 54) / 0.76)


def test_printed_bound_by_hand():
    # η_l k = ½, Q_l = 6/4 − 1
    bound = fedluck_bound_as_printed(**{**SETTING, "lr": 0.25})
    assert bound.value == pytest.approx((2 + 39 / 4 + 13 * 54) / 0.5)
    assert bound.holds


@pytest.mark.parametrize("moved", [0.01, 0.591, 1.409])
def test_the_two_exclude_each_other_at_small_and_large_steps(moved):
    setting = {**SETTING, "lr": moved / 2}
    mended = fedluck_bound(**setting)
    assert mended.value == math.inf
    assert [assumption.text for assumption in mended.broken] == [f"η_l k = {moved:g} is not between 0.592 and 1.408"]
    assert math.isfinite(fedluck_bound_as_printed(**setting).value)


@pytest.mark.parametrize("moved", [0.593, 1.407])
def test_the_two_exclude_each_other_in_between(moved):
    setting = {**SETTING, "lr": moved / 2}
    assert fedluck_bound(**setting).holds
    printed = fedluck_bound_as_printed(**setting)
    assert printed.value == math.inf
    assert len(printed.broken) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"server_lr": 2}, "η_g = 2 is above min(1, 1/L) = 1"),
        ({"lr": 1.2, "steps": 1}, "η_l = 1.2 is above min(1, 1/L) = 1"),
        ({"smoothness": 0.5, "server_lr": 1.5}, "η_g = 1.5 is above min(1, 1/L) = 1"),
        ({"smoothness": 0.5, "lr": 1.1, "steps": 1}, "η_l = 1.1 is above min(1, 1/L) = 1"),
        ({"smoothness": 4, "server_lr": 0.2}, "η_l = 0.5 is above min(1, 1/L) = 0.25"),
        ({"arrivals_every_period": False}, "not every period has an arrival"),
    ],
)
def test_each_assumption_can_break(change, text):
    assert [assumption.text for assumption in fedluck_bound(**{**SETTING, **change}).broken] == [text]


@given(
    st.floats(0.6, 1.4),
    st.integers(1, 20),
    st.floats(0.01, 1),
    st.integers(0, 5),
    st.floats(0, 3),
    st.floats(0, 3),
    st.floats(0.1, 3),
)
def test_mended_bound_says_less_than_its_own_assumption(moved, steps, share, staleness, variance, zeta, gradient):
    bound = fedluck_bound(
        **{
            **SETTING,
            "lr": moved / steps,
            "steps": steps,
            "compression": share,
            "max_staleness": staleness,
            "variance": variance,
            "heterogeneity": zeta,
            "gradient_bound": gradient,
        }
    )
    assert bound.value > 18 * gradient**2


@pytest.mark.parametrize("function", [fedluck_bound, fedluck_bound_as_printed])
@pytest.mark.parametrize("name", sorted(set(SETTING) - {"arrivals_every_period"}))
def test_constants_out_of_range_are_refused(function, name):
    with pytest.raises(ValueError, match=name):
        function(**{**SETTING, name: -1})
