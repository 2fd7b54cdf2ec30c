import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.components.weights import STALENESS, constant, exponential, hinge, polynomial

PARAMETERS = st.floats(0, 20)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (constant(), {0: 1, 1: 1, 1000: 1}),
        (polynomial(), {0: 1, 3: 0.5, 8: 1 / 3, 99: 0.1}),
        (polynomial(a=1), {0: 1, 1: 0.5, 3: 0.25}),
        (polynomial(a=2), {1: 0.25, 2: 1 / 9}),
        (polynomial(a=0), {0: 1, 50: 1}),
        (hinge(), {0: 1, 4: 1, 5: 1 / 11, 6: 1 / 21}),
        (hinge(a=0.5, b=2), {0: 1, 2: 1, 4: 0.5, 8: 0.25}),
        (hinge(a=1, b=0), {0: 1, 1: 0.5, 3: 0.25}),
        (hinge(a=0, b=0), {9: 1}),
        (hinge(a=2, b=1.5), {1: 1, 2: 0.5}),
        (exponential(a=math.log(2)), {0: 1, 1: 0.5, 3: 0.125}),
        (exponential(), {2: 0.36787944117144233}),
        (exponential(a=1), {10_000: 0}),
    ],
)
def test_values_by_hand(weight, expected):
    assert {staleness: weight(staleness) for staleness in expected} == pytest.approx(expected, rel=1e-12)


@given(a=PARAMETERS, b=PARAMETERS)
def test_a_fresh_update_counts_in_full_and_an_older_one_never_more(a, b):
    for weight in (constant(), polynomial(a), hinge(a, b), exponential(a)):
        weights = [weight(staleness) for staleness in range(30)]
        assert weights[0] == 1
        assert weights == sorted(weights, reverse=True)
        assert weights[-1] >= 0


@given(a=st.floats(0, 20), b=st.integers(0, 20))
def test_hinge_does_not_jump_at_b(a, b):
    weight = hinge(a, b)
    assert weight(b) == 1
    assert weight(b + 1) == pytest.approx(1 / (a + 1))


@pytest.mark.parametrize("wrong", [-0.1, -1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("make", "name"),
    [(polynomial, "a"), (hinge, "a"), (hinge, "b"), (exponential, "a")],
    ids=["polynomial", "hinge's a", "hinge's b", "exponential"],
)
def test_parameters_out_of_range_are_refused(make, name, wrong):
    with pytest.raises(ValueError, match=f"{name} must (not be negative|be finite in 32 bits)"):
        make(**{name: wrong})


def test_every_weight_is_found_by_its_name():
    assert set(STALENESS) == {"constant", "polynomial", "hinge", "exponential"}
    assert {name: make().name for name, make in STALENESS.items()} == {name: name for name in STALENESS}
