"""Shares p_i, staleness weights s(τ) and step sizes γ_t."""

import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms import AsyncCommSGD, FedAvg
from offbeat.algorithms.components import RunFacts, Shares
from offbeat.algorithms.components.weights import (
    STALENESS,
    STEP_SIZES,
    constant,
    exponential,
    hinge,
    inverse_square_root,
    inverse_time,
    polynomial,
)
from offbeat.theory import async_comm_convex_step_size

PARAMETERS, POSITIVE = st.floats(0, 20), st.floats(0.01, 100)


def client_shares(clients, weights, weighting):
    shares, run = Shares(weighting), RunFacts(1, clients, weights)
    shares.check_run(run)
    shares.start(run)
    return [shares[client] for client in range(clients)]


@pytest.mark.parametrize(
    ("weights", "weighting", "expected"),
    [
        (None, "examples", [0.25] * 4),
        (torch.tensor([1.0, 2.0, 0.0, 5.0]), "examples", [0.125, 0.25, 0, 0.625]),
        (torch.tensor([1, 2, 0, 5]), "examples", [0.125, 0.25, 0, 0.625]),
        (torch.tensor([3e38, 3e38, 3e38, 3e38]), "examples", [0.25] * 4),
        (torch.tensor([1.0, 2.0, 0.0, math.nan]), "uniform", [0.25] * 4),  # they are not looked at
    ],
)
def test_shares_by_hand(weights, weighting, expected):
    assert client_shares(4, weights, weighting) == expected


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200))
def test_shares_sum_to_1_and_are_proportional(weights):
    shares = client_shares(len(weights), torch.tensor(weights, dtype=torch.float64), "examples")
    assert math.fsum(shares) == pytest.approx(1, rel=1e-12)
    assert shares == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-12)


@pytest.mark.parametrize("weights", [[1.0], [[1.0, 1.0]], [1.0, -1e-9], [0.0, 0.0], [1.0, math.nan], [1.0, math.inf]])
def test_impossible_data_weights_are_refused(weights):
    with pytest.raises(ValueError, match="data_weights must be 2 finite numbers of at least 0, not all 0"):
        client_shares(2, torch.tensor(weights), "examples")


def test_shares_are_saved_since_a_resumed_run_gets_no_weights():
    shares, resumed = Shares("examples"), Shares("examples")
    shares.start(RunFacts(1, 3, torch.tensor([1.0, 2.0, 7.0])))
    resumed.start(RunFacts(1, 3))
    resumed.load_state_dict(shares.state_dict())
    assert [resumed[client] for client in range(3)] == [shares[client] for client in range(3)] == [0.1, 0.2, 0.7]


def test_an_algorithm_with_shares_by_examples_needs_data_weights():
    assert AsyncCommSGD().weighs_all_clients
    assert not AsyncCommSGD(weighting="uniform").weighs_all_clients
    assert not FedAvg().weighs_all_clients


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (constant(), {0: 1, 1: 1, 1000: 1}),
        (polynomial(), {0: 1, 3: 0.5, 8: 1 / 3, 99: 0.1}),
        (polynomial(a=2), {1: 0.25, 2: 1 / 9}),
        (hinge(), {0: 1, 4: 1, 5: 1 / 11, 6: 1 / 21}),
        (hinge(a=0.5, b=2), {0: 1, 2: 1, 4: 0.5, 8: 0.25}),
        (hinge(a=0, b=0), {9: 1}),
        (hinge(a=2, b=1.5), {1: 1, 2: 0.5}),
        (exponential(a=math.log(2)), {0: 1, 1: 0.5, 3: 0.125}),
        (exponential(), {2: 0.36787944117144233}),
        (exponential(a=1), {10_000: 0}),
        (inverse_time(), {0: 8 / 9, 1: 0.8, 7: 0.5, 71: 0.1}),
        (inverse_time(strong_convexity=0.5, smoothness=1, gap=4), {0: 0.8, 12: 0.5, 60: 0.2}),
        (inverse_time(strong_convexity=2, smoothness=3, gap=0), {0: 1 / 3, 4: 0.25}),
        (inverse_square_root(), {0: 0.1, 3: 0.05, 99: 0.01}),
        (inverse_square_root(initial=3), {0: 3, 8: 1}),
    ],
)
def test_values_by_hand(rule, expected):
    assert {number: rule(number) for number in expected} == pytest.approx(expected, rel=1e-12)


@given(a=PARAMETERS, b=PARAMETERS)
def test_a_fresh_update_counts_in_full_and_an_older_one_never_more(a, b):
    for weight in (constant(), polynomial(a), hinge(a, b), exponential(a)):
        weights = [weight(staleness) for staleness in range(30)]
        assert weights[0] == 1
        assert weights == sorted(weights, reverse=True)
        assert weights[-1] >= 0


@given(POSITIVE, POSITIVE, st.integers(1, 100), st.integers(0, 10_000))
def test_inverse_time_is_the_theorems(strong_convexity, smoothness, gap, number):
    constants = {"max_gap": gap, "smoothness": smoothness, "strong_convexity": strong_convexity}
    expected = async_comm_convex_step_size(round_number=number, **constants)
    assert inverse_time(strong_convexity, smoothness, gap)(number) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((polynomial, "a"), (hinge, "a"), (hinge, "b"), (exponential, "a")),
        *((inverse_time, "strong_convexity"), (inverse_time, "smoothness"), (inverse_time, "gap")),
        (inverse_square_root, "initial"),
    ],
)
def test_parameters_out_of_range_are_refused(make, name, wrong):
    with pytest.raises(ValueError, match=f"{name} must (not be negative|be finite in 32 bits|be greater than 0)"):
        make(**{name: wrong})


@pytest.mark.parametrize(
    ("make", "name"),
    [(inverse_time, "strong_convexity"), (inverse_time, "smoothness"), (inverse_square_root, "initial")],
)
def test_a_step_size_of_0_is_refused(make, name):
    with pytest.raises(ValueError, match=f"{name} must be greater than 0, got 0"):
        make(**{name: 0})


def test_rules_are_found_by_name_and_can_be_pickled():
    assert set(STALENESS) == {"constant", "polynomial", "hinge", "exponential"}
    assert set(STEP_SIZES) == {"inverse_time", "inverse_square_root"}
    for name, make in (STALENESS | STEP_SIZES).items():
        copy = pickle.loads(pickle.dumps(make()))
        assert copy == make()
        assert copy.name == name
        assert copy(5) == make()(5)
