import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.theory import (
    async_comm_bound,
    async_comm_convex_bound,
    async_comm_convex_step_size,
    async_comm_convex_weight,
    async_comm_convex_weight_sum,
    async_comm_distance_bound,
    async_comm_step_size,
)

CONVEX = {
    "rounds": 1,
    "clients": 2,
    "max_gap": 4,
    "smoothness": 1,
    "strong_convexity": 0.5,
    "gradient_bound": 2,
    "variance": 1,
}
GENERAL = {
    "rounds": 80,
    "lr": 0.05,
    "clients": 10,
    "max_gap": 20,
    "smoothness": 1,
    "initial_error": 2,
    "gradient_bound": 2,
    "variance": 5,
}


def test_distance_by_hand():
    bound = async_comm_distance_bound(lr=0.5, round_number=7, max_gap=3, gradient_bound=2)
    assert bound.value == pytest.approx(72 * 9)
    assert bound.holds


def test_distance_takes_the_rounds_own_step():
    rates = [1, 0.5, 0.25]
    values = [async_comm_distance_bound(lr=rates, round_number=t, max_gap=1, gradient_bound=2).value for t in range(3)]
    assert values == pytest.approx([72 * 4, 72, 18])


@pytest.mark.parametrize(
    ("rates", "max_gap", "text"),
    [
        ([1, 0.9, 0.95], 1, "γ_t increases from round 1 to 2"),
        ([1, 0.8, 0.3], 1, "γ_t is more than twice γ_{t+Δ} at t = 1"),
        ([1, 0.9, 0.4], 2, "γ_t is more than twice γ_{t+Δ} at t = 0"),
    ],
)
def test_distance_needs_slowly_falling_steps(rates, max_gap, text):
    bound = async_comm_distance_bound(lr=rates, round_number=0, max_gap=max_gap, gradient_bound=1)
    assert [assumption.text for assumption in bound.broken] == [text]


def test_halving_over_a_gap_is_allowed():
    assert async_comm_distance_bound(lr=[1, 0.9, 0.5], round_number=0, max_gap=2, gradient_bound=1).holds


def test_distance_needs_the_rounds_step():
    with pytest.raises(ValueError, match="round_number must be less than 2, got 2"):
        async_comm_distance_bound(lr=[1, 1], round_number=2, max_gap=1, gradient_bound=1)


def test_rounds_count_from_0():
    with pytest.raises(ValueError, match="round_number must be a finite number of at least 0, got -1"):
        async_comm_distance_bound(lr=[1, 1], round_number=-1, max_gap=1, gradient_bound=1)
    for rule in (async_comm_convex_step_size, async_comm_convex_weight):
        with pytest.raises(ValueError, match="round_number must be a finite number of at least 0, got -1"):
            rule(round_number=-1, max_gap=1, smoothness=1, strong_convexity=1)


def test_distance_refuses_a_step_of_nothing():
    with pytest.raises(ValueError, match="lr must be a finite number greater than 0, got 0"):
        async_comm_distance_bound(lr=[1, 0], round_number=0, max_gap=1, gradient_bound=1)


def test_convex_step_size_and_weight_by_hand():
    constants = {"max_gap": 4, "smoothness": 2, "strong_convexity": 1}
    assert async_comm_convex_step_size(round_number=0, **constants) == pytest.approx(8 / 20)
    assert async_comm_convex_step_size(round_number=20, **constants) == pytest.approx(8 / 40)
    assert async_comm_convex_weight(round_number=5, **constants) == pytest.approx(625)
    halved = {"max_gap": 4, "smoothness": 1, "strong_convexity": 0.5}
    assert async_comm_convex_step_size(round_number=0, **halved) == pytest.approx(16 / 20)


@given(st.integers(1, 60), st.floats(0.1, 10), st.floats(0.01, 1))
def test_convex_step_sizes_meet_proposition_2_1(max_gap, smoothness, share):
    rates = [
        async_comm_convex_step_size(
            round_number=t, max_gap=max_gap, smoothness=smoothness, strong_convexity=share * smoothness
        )
        for t in range(100)
    ]
    assert async_comm_distance_bound(lr=rates, round_number=0, max_gap=max_gap, gradient_bound=1).holds
    assert rates[0] < 1 / smoothness


@given(st.integers(1, 50), st.integers(1, 20), st.floats(0.1, 10), st.floats(0.01, 1))
def test_weight_sum_is_the_sum_of_the_weights(rounds, max_gap, smoothness, share):
    constants = {"max_gap": max_gap, "smoothness": smoothness, "strong_convexity": share * smoothness}
    total = sum(async_comm_convex_weight(round_number=t, **constants) for t in range(rounds))
    assert async_comm_convex_weight_sum(rounds=rounds, **constants) == pytest.approx(total)
    assert total >= rounds**3 / 3


def test_convex_bound_by_hand():
    # Δ + 8L/λ = 20, S_1 = 400: 4·8000/400 + 4·41/200·½ + 2·10⁴·4·16/(0.125·400)
    bound = async_comm_convex_bound(**CONVEX)
    assert bound.value == pytest.approx(80 + 0.41 + 25600)
    assert bound.holds


def test_convex_bound_over_two_rounds():
    # S_2 = 400 + 441
    value = async_comm_convex_bound(**{**CONVEX, "rounds": 2}).value
    assert value == pytest.approx((32000 + 4 * 2 * 42 / 0.5 / 2 + 2e4 * 2 * 4 * 16 / 0.125) / 841)


def test_strong_convexity_is_at_most_the_smoothness():
    (broken,) = async_comm_convex_bound(**{**CONVEX, "strong_convexity": 2}).broken
    assert broken.text == "λ = 2 is above L = 1"


def test_step_size_by_hand():
    assert async_comm_step_size(rounds=400, clients=4, smoothness=2) == pytest.approx(0.05)


def test_bound_by_hand():
    bound = async_comm_bound(**GENERAL)
    assert bound.value == pytest.approx(4 + 944 * 4 + 0.1)
    assert bound.holds


def test_bound_needs_a_small_step():
    (broken,) = async_comm_bound(**{**GENERAL, "lr": 0.06}).broken
    assert broken.text == "γ = 0.06 is above 1/(18L) = 0.0555556"


@pytest.mark.parametrize("name", sorted(CONVEX))
def test_convex_constants_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=name):
        async_comm_convex_bound(**{**CONVEX, name: -1})


@pytest.mark.parametrize("name", sorted(GENERAL))
def test_constants_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=name):
        async_comm_bound(**{**GENERAL, name: -1})
