import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.shares import check_weighting, client_shares


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
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(ValueError, match="data_weights must be 2 finite numbers of at least 0, not all 0"):
        client_shares(2, torch.tensor(weights), "examples")


def test_there_are_two_weightings():
    check_weighting("examples")
    check_weighting("uniform")
    with pytest.raises(ValueError, match="weighting must be 'examples' or 'uniform', got 'Uniform'"):
        check_weighting("Uniform")
