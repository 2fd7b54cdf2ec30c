import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms import AsyncCommSGD, FedAvg
from offbeat.algorithms.components import RunFacts, Shares


def client_shares(clients, weights, weighting):
    shares, run = Shares(weighting), RunFacts(1, clients, weights)
    shares.check_run(run)
    shares.start(run)
    return [shares[client] for client in range(clients)]


@pytest.mark.parametrize(
    ("weights", "weighting", "expected"),
    [
        (None, "examples", [0.25] * 4),
        (None, "uniform", [0.25] * 4),
        (torch.tensor([1.0, 2.0, 0.0, 5.0]), "examples", [0.125, 0.25, 0, 0.625]),
        (torch.tensor([1, 2, 0, 5]), "examples", [0.125, 0.25, 0, 0.625]),
        (torch.tensor([1.0, 2.0, 0.0, 5.0]), "uniform", [0.25] * 4),
        (torch.tensor([3e38, 3e38, 3e38, 3e38]), "examples", [0.25] * 4),
    ],
)
def test_shares_by_hand(weights, weighting, expected):
    assert client_shares(4, weights, weighting) == expected


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200))
def test_shares_sum_to_1_and_are_proportional(weights):
    shares = client_shares(len(weights), torch.tensor(weights, dtype=torch.float64), "examples")
    assert math.fsum(shares) == pytest.approx(1, rel=1e-12)
    assert shares == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-12)


@pytest.mark.parametrize(
    "weights",
    [
        [1.0],
        [1.0, 1.0, 1.0],
        [[1.0, 1.0]],
        [1.0, -1e-9],
        [0.0, 0.0],
        [1.0, math.nan],
        [1.0, math.inf],
    ],
)
def test_impossible_data_weights_are_refused(weights):
    with pytest.raises(ValueError, match="data_weights must be 2 finite numbers of at least 0, not all 0"):
        client_shares(2, torch.tensor(weights), "examples")


def test_uniform_shares_do_not_look_at_the_weights():
    assert client_shares(2, torch.tensor([math.nan]), "uniform") == [0.5, 0.5]


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
