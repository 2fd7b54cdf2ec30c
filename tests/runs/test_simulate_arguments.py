"""Conversions of arguments; the mistakes in them are tested with ``offbeat.simulate``."""

import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.config.experiment_sections import StopSection
from offbeat.errors import OffbeatError
from offbeat.runs.simulate_arguments import accelerator_of, module_of, objective_of, plan_of, table_of
from offbeat.training.accelerator import CPU


def test_a_module_is_copied_and_a_function_draws_from_the_seed():
    module = torch.nn.Linear(2, 2)
    copied = module_of(module, 1)
    assert copied is not module
    assert torch.equal(copied.weight, module.weight)
    one, again, other = (module_of(lambda: torch.nn.Linear(2, 2), seed) for seed in (1, 1, 2))
    assert torch.equal(one.weight, again.weight)
    assert not torch.equal(one.weight, other.weight)


def test_a_module_that_a_copy_would_not_equal_is_refused():
    hooked = torch.nn.Linear(2, 2)
    hooked.weight.register_hook(lambda gradient: gradient)
    with pytest.raises(OffbeatError, match=r"^model: its parameter weight has a hook: pass the class or a function$"):
        module_of(hooked, 1)
    shared = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    shared[1].weight.data = shared[0].weight.data
    with pytest.raises(OffbeatError, match="share their memory"):
        module_of(shared, 1)


def test_the_accelerator():
    assert accelerator_of("cpu", "float32", True) == CPU
    with pytest.raises(OffbeatError, match="precision = 'half': must be 'float32' or 'tf32' or 'bf16'"):
        accelerator_of("cpu", "half", True)
    with pytest.raises(OffbeatError, match="device = 'gpu': must be auto, cpu"):
        accelerator_of("gpu", "float32", True)


def test_a_plan_is_one_or_a_table():
    plan = LocalPlan(steps=2, batch_size=3, lr=0.5)
    assert plan_of(plan) == plan_of({"steps": 2, "batch_size": 3, "lr": 0.5}) == plan


def test_a_table_without_its_nones():
    assert table_of(StopSection, {"versions": 3, "updates": None}) == StopSection(versions=3)
    with pytest.raises(OffbeatError, match=r"stop\.versions = 0"):
        table_of(StopSection, {"versions": 0})


def test_metrics_by_name_or_by_function():
    objective = objective_of("mse", {"first": lambda outputs, labels: 1.0})
    assert objective.metrics.keys() == {"first"}
    assert objective_of("cross_entropy", None).metrics.keys() == {"accuracy"}
    assert objective_of("mse", ["mae", "training_loss"]).training_loss
