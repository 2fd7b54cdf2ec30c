import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.components.weights import STEP_SIZES, inverse_square_root, inverse_time
from offbeat.theory import async_comm_convex_step_size

POSITIVE = st.floats(0.01, 100)


@pytest.mark.parametrize(
    ("step_sizes", "expected"),
    [
        (inverse_time(), {0: 8 / 9, 1: 0.8, 7: 0.5, 71: 0.1}),
        (inverse_time(strong_convexity=0.5, smoothness=1, gap=4), {0: 0.8, 12: 0.5, 60: 0.2}),
        (inverse_time(strong_convexity=2, smoothness=3, gap=0), {0: 1 / 3, 4: 0.25}),
        (inverse_square_root(), {0: 0.1, 3: 0.05, 99: 0.01}),
        (inverse_square_root(initial=3), {0: 3, 8: 1}),
    ],
)
def test_values_by_hand(step_sizes, expected):
    assert {number: step_sizes(number) for number in expected} == pytest.approx(expected, rel=1e-12)


@given(POSITIVE, POSITIVE, st.integers(1, 100), st.integers(0, 10_000))
def test_inverse_time_is_the_theorems(strong_convexity, smoothness, gap, number):
    expected = async_comm_convex_step_size(
        round_number=number, max_gap=gap, smoothness=smoothness, strong_convexity=strong_convexity
    )
    assert inverse_time(strong_convexity, smoothness, gap)(number) == pytest.approx(expected, rel=1e-12)


@given(POSITIVE, POSITIVE, st.integers(1, 50))
def test_step_sizes_fall_and_the_theorems_slowly_enough_for_its_gap(first, second, gap):
    for step_sizes in (inverse_time(first, second, gap), inverse_square_root(first)):
        values = [step_sizes(number) for number in range(120)]
        assert values == sorted(values, reverse=True)
        assert values[-1] > 0
    theorems = inverse_time(first, second, gap)
    assert all(theorems(number) <= 2 * theorems(number + gap) for number in range(100))


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (inverse_time, "strong_convexity"),
        (inverse_time, "smoothness"),
        (inverse_time, "gap"),
        (inverse_square_root, "initial"),
    ],
)
def test_parameters_out_of_range_are_refused(make, name, wrong):
    with pytest.raises(ValueError, match=f"{name} must (be greater than 0|not be negative|be finite in 32 bits)"):
        make(**{name: wrong})


@pytest.mark.parametrize(
    ("make", "name"),
    [(inverse_time, "strong_convexity"), (inverse_time, "smoothness"), (inverse_square_root, "initial")],
)
def test_a_step_size_of_0_is_refused(make, name):
    with pytest.raises(ValueError, match=f"{name} must be greater than 0, got 0"):
        make(**{name: 0})


def test_step_sizes_are_found_by_name_and_can_be_pickled():
    assert set(STEP_SIZES) == {"inverse_time", "inverse_square_root"}
    for name, make in STEP_SIZES.items():
        copy = pickle.loads(pickle.dumps(make()))
        assert copy == make()
        assert copy.name == name
        assert copy(5) == make()(5)
