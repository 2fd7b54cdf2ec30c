"""Conversions of arguments; the mistakes in them are tested with ``offbeat.simulate``."""

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.lr_decay import exponential

from offbeat.algorithms import Compression, FedBuff, LocalPlan
from offbeat.config.experiment_sections import StopSection
from offbeat.python.arguments import (
    experiment_of,
    label_of,
    local_of,
    metrics_of,
    module_of,
    objective_of,
    path_of,
)


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
    layer = torch.nn.Linear(2, 2)
    layer.weight = torch.nn.Parameter(torch.eye(2).to_sparse())  # which cannot be copied
    with pytest.raises(OffbeatError, match=r"parameter weight is torch\.sparse_coo: make it dense"):
        module_of(layer, 1)


def experiment(**changes):
    """Return a small experiment, with other sections."""
    sections = {
        "name": "a",
        "data": {"name": "digits"},
        "model": {"name": "python:net"},
        "local": {"steps": 2, "batch_size": 3, "lr": 0.5},
        "population": {"clients": 4},
        "stop": {"versions": 3},
        "evaluate": {"every_versions": 1},
        "algorithms": {"a": {"algorithm": "fedbuff"}},
    }
    return experiment_of({**sections, **changes}, {"first": len})


def test_a_plan_is_one_or_a_table():
    plan = LocalPlan(steps=2, batch_size=3, lr=0.5)
    assert experiment().plan("a") == experiment(local=local_of(plan)).plan("a") == plan


def test_a_plan_has_what_a_table_has_not():
    plan = LocalPlan(
        np.int64(2), 3, (0.5, 0.25), compression=Compression("top_k", (("share", 0.5),)), lr_decay=exponential(0.5)
    )
    assert experiment(local=local_of(plan)).plan("a") == plan


def test_an_experiment_without_nones_and_numpy():
    here = experiment(stop={"versions": np.int64(3), "updates": None}, server=None, seeds=[np.int64(7)])
    assert here.stop == StopSection(versions=3)
    assert experiment(stop={"versions": torch.tensor(3)}).stop == StopSection(versions=3)
    assert here.seeds == (7,)
    with pytest.raises(OffbeatError, match=r"^stop\.versions = 0: must be"):
        experiment(stop={"versions": 0})


def test_all_mistakes_come_at_once():
    with pytest.raises(OffbeatError) as caught:
        experiment(stop={"versions": 0}, device="gpu", precision="half")
    assert [line.partition(" = ")[0] for line in caught.value.lines] == ["device", "precision", "stop.versions"]


def test_metrics_by_name_or_by_function():
    names, functions = metrics_of("mse", {"first": len})
    assert (names, functions) == (["first"], {"first": len})
    assert (
        metrics_of("cross_entropy", None) == metrics_of(torch.nn.CrossEntropyLoss(), "accuracy") == (["accuracy"], {})
    )
    here = experiment(evaluate={"every_versions": 1, "metrics": ["first", "mae", "training_loss"]})
    objective = objective_of(here, len, {"first": len})
    assert list(objective.metrics) == ["mae", "first"]
    assert objective.training_loss
    assert objective.loss is len


@pytest.mark.parametrize(
    ("given", "path"), [(torch.nn.Linear, "Linear"), (torch.nn.ReLU(), "ReLU"), (lambda: 3, "function")]
)
def test_an_object_has_a_path(given, path):
    assert path_of(given) == f"python:{path}"


def test_a_label_is_a_name_for_a_folder():
    class Own(FedBuff):
        name = "/own algorithm!"

    assert [label_of(one) for one in ("fedavg", "my.py:Own", FedBuff(), Own())] == [
        "fedavg", "Own", "fedbuff", "own-algorithm-",
    ]  # fmt: skip
