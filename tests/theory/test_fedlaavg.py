import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.theory import (
    fedavg_example_limit,
    fedlaavg_bound,
    fedlaavg_example_bound,
    fedlaavg_max_staleness,
    fedlaavg_step_size,
)

SETTING = {
    "rounds": 8,
    "lr": 0.5,
    "clients": 4,
    "max_staleness": 4,
    "smoothness": 0.5,
    "initial_error": 3,
    "variance": 4,
    "gradient_bound": 2,
}
CENTRES = st.floats(-10, 10)
TURNS = st.integers(1, 12)


@pytest.mark.parametrize(
    ("clients", "cohort", "every", "staleness"), [(6, 2, 1, 2), (6, 2, 3, 8), (5, 3, 4, 7), (4, 4, 1, 0)]
)
def test_lemma_2_by_hand(clients, cohort, every, staleness):
    """That algorithms keep to it, and reach it, is in tests/algorithms/test_fedlaavg_theory.py."""
    assert fedlaavg_max_staleness(clients=clients, cohort=cohort, available_every=every) == staleness


def test_lemma_2_refuses_a_cohort_larger_than_all():
    with pytest.raises(ValueError, match="cohort must be at most the number of clients, 3, got 4"):
        fedlaavg_max_staleness(clients=3, cohort=4, available_every=1)


def test_step_size_by_hand():
    size = fedlaavg_step_size(rounds=25, steps=2, clients=16, cohort=4, available_every=4, smoothness=0.25)
    assert size == pytest.approx(0.5 * 2 / (2 * 0.25 * 2 * 2 * 5))


def test_bound_by_hand():
    # γIL = 1, 2γL = ½: 2·8/2 + 2·4/½ + 4·4 + 4·½·4·½/4 + 4·3/4
    assert fedlaavg_bound(**SETTING).value == pytest.approx(8 + 16 + 16 + 1 + 3)
    assert fedlaavg_bound(**SETTING).holds


def test_bound_of_several_steps_by_hand():
    # C = 2, γCL = ½, 2γL = ½: 2·½·4·8/2 + (2·16/½ + 4·16 + 16 + 2)·¼·4 + 4·½·4·½/4 + 4·3/8
    assert fedlaavg_bound(**SETTING, steps=2).value == pytest.approx(16 + 146 + 1 + 1.5)
    assert fedlaavg_bound(**SETTING, steps=2).holds


def test_full_participation_has_no_staleness_terms():
    assert fedlaavg_bound(**{**SETTING, "max_staleness": 0}).value == pytest.approx(1 + 3)


@pytest.mark.parametrize("lr", [1.0, 1.5])
def test_no_bound_from_half_over_l_on(lr):
    bound = fedlaavg_bound(**{**SETTING, "lr": lr})
    assert bound.value == math.inf
    assert [assumption.text for assumption in bound.broken] == [f"γ = {lr:g} is not below 1/(2L) = 1"]


def test_the_bound_is_for_a_full_server_step():
    (broken,) = fedlaavg_bound(**SETTING, server_lr=2).broken
    assert broken.text == "server_lr = 2 is not 1"


@pytest.mark.parametrize("name", sorted(SETTING))
def test_constants_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=name):
        fedlaavg_bound(**{**SETTING, name: -1})


@given(st.floats(0.01, 0.49), TURNS, TURNS, CENTRES, CENTRES)
def test_fedavg_goes_to_the_wrong_point(lr, t1, t2, e1, e2):
    point = 3.0
    for _ in range(3000 // (t1 + t2) + 1):
        for centre, turns in ((e1, t1), (e2, t2)):
            for _ in range(turns):
                point -= lr * 2 * (point - centre)
    limit = fedavg_example_limit(lr=lr, first_rounds=t1, second_rounds=t2, first_centre=e1, second_centre=e2)
    assert limit == pytest.approx(point, abs=1e-9)
    q = 1 - 2 * lr
    printed = (q**t2 * (e1 - e2) + e2 - e1 * q ** (t1 + t2)) / (1 - q ** (t1 + t2))
    assert limit == pytest.approx(printed, abs=1e-9)


@pytest.mark.parametrize("lr", [0, 1e-300, 1e-16, 1e-9])
def test_fedavg_with_small_steps_goes_to_the_mean_by_availability(lr):
    limit = fedavg_example_limit(lr=lr, first_rounds=20, second_rounds=5, first_centre=1, second_centre=-1)
    assert limit == pytest.approx((20 * 1 + 5 * -1) / 25, abs=1e-6)


@pytest.mark.parametrize("lr", [-0.1, 0.5, math.nan])
def test_fedavg_needs_a_step_below_half(lr):
    with pytest.raises(ValueError, match="lr must be at least 0 and less than 1/2"):
        fedavg_example_limit(lr=lr, first_rounds=1, second_rounds=1, first_centre=1, second_centre=-1)


def example_bound(rounds, start, t1, t2, e1, e2, **more):
    return fedlaavg_example_bound(
        rounds=rounds, start=start, first_rounds=t1, second_rounds=t2, first_centre=e1, second_centre=e2, **more
    )


@pytest.mark.parametrize("start", [3, -3])
def test_example_bound_by_hand(start):
    bound = example_bound(100, start, 3, 2, 1, -1)
    assert bound.value == pytest.approx(9 / 10 + 9 * 36 / 400)
    assert bound.holds


def test_example_bound_where_the_centres_are_farther_apart_than_the_start():
    assert example_bound(100, 1, 2, 3, 4, -2).value == pytest.approx(9 * 36 / 400)


def test_example_bound_is_for_its_own_step_size():
    (broken,) = example_bound(100, 1, 1, 1, 1, -1, lr=0.1).broken
    assert broken.text == "γ = 0.1 is not 1/(2√T) = 0.05"
