import dataclasses
import math

import numpy as np
import pytest
import torch

from offbeat.algorithms import Compression, FedBuff, LocalPlan, Update, check_vector
from offbeat.algorithms.base import check_update, resolve


class Unopened:
    """A promise that nobody may look into."""

    def resolve(self):
        raise AssertionError


TOP_K = Compression("top_k", (("share", 0.1),))
PLAN = {"steps": 2, "batch_size": 4, "lr": 0.1}
UPDATE = {"client": 0, "version": 0, "vector": torch.zeros(2), "examples": 1, "steps": 1, "normaliser": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": -3}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"steps": True}, "steps"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": 8.0}, "batch_size"),
        ({"lr": 0.0}, "lr must be greater than 0"),
        ({"lr": -0.1}, "lr must be greater than 0, got -0.1"),
        ({"lr": math.nan}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"lr": (0.1, 0.0)}, "lr must be greater than 0"),
        ({"lr": (0.1,)}, "lr must be one number or a tuple of 2, one a step, got 1"),
        ({"lr": (0.1, 0.1, 0.1)}, "one a step, got 3"),
        ({"lr": ()}, "one a step, got 0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": math.nan}, "momentum"),
        ({"weight_decay": -1e-4}, "weight_decay must not be negative"),
        ({"weight_decay": math.inf}, "weight_decay"),
        ({"mu": -1.0}, "mu must not be negative"),
        ({"mu": math.nan}, "mu"),
        ({"momentum": 0.9, "mu": 0.1}, "momentum and mu cannot be combined"),
        ({"clip_norm": 0.0}, "clip_norm must be greater than 0"),
        ({"clip_norm": math.inf}, "clip_norm"),
        ({"error_feedback": True}, "error_feedback makes up for compression: set compression, or leave it out"),
    ],
)
def test_plan_refuses_what_is_out_of_range(change, message):
    with pytest.raises(ValueError, match=message):
        LocalPlan(**PLAN | change)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 1, "batch_size": 1, "lr": 1},
        {"lr": (0.1, 0.05)},
        {"momentum": 0.99},
        {"weight_decay": 0.0, "mu": 2.0, "clip_norm": 1e-9},
        {"compression": TOP_K},
        {"compression": Compression("sign"), "error_feedback": True},
    ],
)
def test_plan_takes_the_ends_of_its_ranges(change):
    plan = LocalPlan(**PLAN | change)
    assert {name: getattr(plan, name) for name in change} == change


def test_plan_has_no_options_unless_asked():
    plan = LocalPlan(**PLAN)
    assert (plan.momentum, plan.weight_decay, plan.mu, plan.clip_norm) == (0, 0, 0, None)
    assert (plan.compression, plan.error_feedback) == (None, False)


def test_a_compression_has_no_parameters_unless_given_and_equals_another_of_the_same():
    assert Compression("sign").parameters == ()
    assert Compression("top_k", (("share", 0.1),)) == TOP_K
    assert len({TOP_K, Compression("top_k", (("share", 0.1),)), Compression("top_k", (("share", 0.2),))}) == 2
    assert len({LocalPlan(**PLAN), LocalPlan(**PLAN, compression=TOP_K)}) == 2


def test_a_visit_cut_short_keeps_all_else():
    whole = LocalPlan(5, 4, 0.1, momentum=0.5, weight_decay=0.01, clip_norm=2.0, compression=TOP_K, error_feedback=True)
    assert whole.prefix(3) == dataclasses.replace(whole, steps=3)
    assert whole.prefix(5) == whole
    assert LocalPlan(5, 4, 0.1, mu=0.3).prefix(1) == LocalPlan(1, 4, 0.1, mu=0.3)


def test_a_visit_cut_short_takes_its_first_steps_by_their_own_step_sizes():
    whole = LocalPlan(3, 4, (0.3, 0.2, 0.1))
    assert whole.prefix(2) == LocalPlan(2, 4, (0.3, 0.2))
    assert whole.prefix(2).prefix(1).lr == (0.3,)
    assert whole.lr == (0.3, 0.2, 0.1)


@pytest.mark.parametrize("lr", [0.1, (0.3, 0.2)])
@pytest.mark.parametrize("steps", [-1, 0, 3])
def test_a_visit_is_not_cut_to_nothing_nor_to_more_than_it_was(lr, steps):
    with pytest.raises(ValueError, match=f"steps must be in 1 … 2, got {steps}"):
        LocalPlan(**{**PLAN, "lr": lr}).prefix(steps)


@pytest.mark.parametrize(
    ("record", "name"), [(LocalPlan(**PLAN), "steps"), (Update(**UPDATE), "client"), (TOP_K, "name")]
)
def test_records_are_frozen_and_slotted(record, name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, 7)
    assert not hasattr(record, "__dict__")


def test_a_replaced_plan_is_validated_again():
    with pytest.raises(ValueError, match="steps"):
        dataclasses.replace(LocalPlan(**PLAN), steps=0)


def test_resolve_takes_tensors_and_promises(deferred, vector):
    assert resolve(vector(1, 2), 2).tolist() == [1, 2]
    assert resolve(deferred(vector(3, 4)), 2).tolist() == [3, 4]
    assert not resolve(vector(1, 2).requires_grad_(), 2).requires_grad
    for wrong in (vector(1), torch.zeros(2, dtype=torch.float64)):
        with pytest.raises(ValueError, match="shape"):
            resolve(deferred(wrong), 2)


@pytest.mark.parametrize(("name", "huge"), [("examples", 2**31), ("steps", 2**31), ("examples", 10**400)])
def test_nobody_claims_to_be_larger_than_anything(name, huge):
    with pytest.raises(ValueError, match=name):
        check_update(Update(**{**UPDATE, name: huge}), clients=1, version=0, length=2)
    check_update(Update(**{**UPDATE, name: 2**31 - 1}), clients=1, version=0, length=2)


def test_counts_may_be_numpys():
    check_update(Update(**{**UPDATE, "examples": np.int64(5)}), clients=1, version=0, length=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.zeros(2), r"shape \(3,\), got torch.float32 of shape \(2,\)"),
        (torch.zeros(4), r"of shape \(4,\)"),
        (torch.zeros(3, 1), r"of shape \(3, 1\)"),
        (torch.zeros(()), r"of shape \(\)"),
        (torch.zeros(3, dtype=torch.float64), "got torch.float64"),
        (torch.zeros(3, dtype=torch.float16), "got torch.float16"),
        (torch.zeros(3, dtype=torch.int32), "got torch.int32"),
        (torch.tensor([0.0, math.nan, 0.0]), "NaN"),
        (torch.tensor([0.0, math.nan, math.inf]), "NaN"),
        (torch.tensor([3e30, math.nan, 3e30]), "NaN"),
        (torch.tensor([0.0, math.inf, 0.0]), "infinity"),
        (torch.tensor([0.0, -math.inf, 0.0]), "infinity"),
        (torch.tensor([math.inf, -math.inf, 0.0]), "infinity"),
    ],
)
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_check_vector_says_what_is_wrong(wrong, message, max_norm):
    with pytest.raises(ValueError, match=message):
        check_vector(wrong, 3, max_norm)


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


def test_check_vector_leaves_the_vector_alone(vector):
    checked = vector(3, -4)
    check_vector(checked, 2, max_norm=10.0)
    assert checked.tolist() == [3, -4]


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
def test_check_update_accepts_the_ends_of_its_ranges_and_never_looks_into_a_promise(change):
    assert check_update(Update(**UPDATE | change), clients=5, version=3, length=2) is None


def test_what_an_algorithm_need_not_say():
    algorithm = FedBuff()
    algorithm.start(torch.zeros(1), clients=1)
    assert algorithm.round is None
    assert algorithm.period is None
    assert algorithm.needs_base is False
    assert algorithm.selection == "uniform"
    assert algorithm.pooled is False
    assert algorithm.result is algorithm.model
    assert algorithm.returns_in(0) == algorithm.round
    assert list(algorithm.urgent()) == []
    assert algorithm.tick() is False


def test_a_vector_is_a_tensor_or_a_promise():
    with pytest.raises(ValueError, match="must be a tensor or a promise of one, got list"):
        check_update(Update(**{**UPDATE, "vector": [0.0, 0.0]}), clients=1, version=0, length=2)
