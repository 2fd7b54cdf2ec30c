import math

import numpy as np
import pytest
import torch

from offbeat.algorithms import Update, check_vector
from offbeat.algorithms.components.client_update import check_update, resolve


class Unopened:
    """A promise that nobody may look into."""

    def resolve(self):
        raise AssertionError


UPDATE = {"client": 0, "version": 0, "vector": torch.zeros(2), "examples": 1, "steps": 1, "normaliser": 1.0}


def test_an_update_is_not_changed():
    update = Update(**UPDATE)
    with pytest.raises(AttributeError):
        update.client = 7
    assert not hasattr(update, "__dict__")


def test_resolve_takes_tensors_and_promises(deferred, vector):
    assert resolve(vector(1, 2), 2).tolist() == [1, 2]
    assert resolve(deferred(vector(3, 4)), 2).tolist() == [3, 4]
    assert not resolve(vector(1, 2).requires_grad_(), 2).requires_grad
    for wrong in (vector(1), torch.zeros(2, dtype=torch.float64)):
        with pytest.raises(ValueError, match="shape"):
            resolve(deferred(wrong), 2)


@pytest.mark.parametrize(("name", "huge"), [("examples", 2**31), ("steps", 2**31), ("examples", 10**400)])
def test_counts_of_2_to_the_31_are_refused(name, huge):
    with pytest.raises(ValueError, match=name):
        check_update(Update(**{**UPDATE, name: huge}), clients=1, version=0, length=2)
    check_update(Update(**{**UPDATE, name: 2**31 - 1}), clients=1, version=0, length=2)


def test_counts_may_be_numpy_numbers():
    check_update(Update(**{**UPDATE, "examples": np.int64(5)}), clients=1, version=0, length=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.zeros(2), r"shape \(3,\), got torch.float32 of shape \(2,\)"),
        (torch.zeros(3, 1), r"of shape \(3, 1\)"),
        (torch.zeros(()), r"of shape \(\)"),
        (torch.zeros(3, dtype=torch.float64), "got torch.float64"),
        (torch.zeros(3, dtype=torch.int32), "got torch.int32"),
        (torch.tensor([0.0, math.nan, 0.0]), "NaN"),
        (torch.tensor([0.0, math.nan, math.inf]), "NaN"),
        (torch.tensor([3e30, math.nan, 3e30]), "NaN"),
        (torch.tensor([0.0, math.inf, 0.0]), "infinity"),
        (torch.tensor([0.0, -math.inf, 0.0]), "infinity"),
        (torch.tensor([math.inf, -math.inf, 0.0]), "infinity"),
    ],
)
def test_check_vector_says_what_is_wrong(wrong, message):
    with pytest.raises(ValueError, match=message):
        check_vector(wrong, 3, 1.0)


def test_check_vector_bounds_the_euclidean_norm(vector):
    check_vector(vector(3, -4), 2, max_norm=5.0)
    with pytest.raises(ValueError, match=r"norm is 5, allowed is at most 4\.99"):
        check_vector(vector(3, -4), 2, max_norm=4.99)


def test_check_vector_accepts_a_finite_vector_whose_norm_overflows_float32(vector):
    huge = vector(3e30, 4e30, 0)
    assert check_vector(huge, 3) is None
    assert check_vector(huge, 3, max_norm=5.1e30) is None
    with pytest.raises(ValueError, match=r"norm is 5e\+30, allowed is at most 1e\+06"):
        check_vector(huge, 3, max_norm=1e6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": -1}, r"client must be in 0 … 4, got -1"),
        ({"client": 5}, r"client must be in 0 … 4, got 5"),
        ({"version": -1}, r"version must be in 0 … 3, got -1"),
        ({"version": 4}, r"version must be in 0 … 3, got 4"),
        ({"examples": 0}, "examples"),
        ({"examples": -1}, "examples"),
        ({"examples": 1.5}, "examples"),
        ({"steps": -1}, "steps"),
        ({"normaliser": -0.5}, "normaliser"),
        ({"normaliser": math.nan}, "normaliser"),
        ({"normaliser": math.inf}, "normaliser"),
        ({"vector": torch.zeros(3)}, "shape"),
        ({"vector": torch.zeros(2, dtype=torch.float64)}, "float64"),
    ],
)
def test_check_update_says_what_is_wrong(change, message):
    with pytest.raises(ValueError, match=message):
        check_update(Update(**UPDATE | change), clients=5, version=3, length=2)


@pytest.mark.parametrize(
    "change",
    [{"client": 4}, {"version": 3}, {"steps": 0, "normaliser": 0.0}, {"vector": Unopened()}],
)
def test_check_update_accepts_the_ends_of_ranges_and_keeps_promises(change):
    assert check_update(Update(**UPDATE | change), clients=5, version=3, length=2) is None


def test_a_vector_is_a_tensor_or_a_promise():
    with pytest.raises(ValueError, match="must be a tensor or a promise of one, got list"):
        check_update(Update(**{**UPDATE, "vector": [0.0, 0.0]}), clients=1, version=0, length=2)
