"""Models whose layers assign their own weights or gradients, or leave autocast."""

import dataclasses

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.evaluation import Evaluator
from offbeat.training.fit_check import check_fit
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import made
from tests.training.trainers.test_loop import LITTLE, PLANS, visit_with_torch
from tests.workloads import workload_of


class LargestNorm(nn.Linear):
    """Assigns its weights anew in each pass, such that no row is longer than 1/2."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.5)
        return super().forward(inputs)


class Clearing(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        self.zero_grad()
        return super().forward(inputs)


@pytest.mark.parametrize("kind", [LargestNorm, Clearing])
@pytest.mark.parametrize("plan", ["plain", "momentum", "adamw"])
def test_values_and_gradients_that_a_layer_replaces_are_trained(kind, plan):
    model, module = (made(lambda: kind(3, 2)) for _ in range(2))
    model = FlatModel(model)
    trainer = LoopBackend(workload_of(model, **LITTLE))
    inputs, labels = LITTLE["inputs"], LITTLE["labels"]
    evaluator = Evaluator(model, loss=cross_entropy, metrics={}, inputs=inputs, labels=labels, seed=1)
    start = model.vector.clone()
    for visit in range(2):
        job = Job(1, visit, 0, start, PLANS[plan], "params")
        (result,) = trainer.train([job])
        expected, _ = visit_with_torch(module, inputs, labels, LITTLE["shards"][1], job)
        torch.testing.assert_close(result.vector, expected)
        with torch.no_grad():  # the module changes its weights here, too
            assert evaluator(result.vector)[0] == pytest.approx(cross_entropy(module(inputs), labels).item())
        start = result.vector


def test_parts_in_float32_have_gradients_in_float32():
    class Part(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return super().forward(inputs)

    def gradient(accelerator: Accelerator) -> Tensor:
        model = made(lambda: FlatModel(Part(3, 2)))
        workload = dataclasses.replace(workload_of(model, **LITTLE), accelerator=accelerator)
        job = Job(0, 0, 0, model.vector.clone(), LocalPlan(steps=3, batch_size=4, lr=0.1), "delta")
        return LoopBackend(workload).train([job])[0].vector

    assert torch.equal(gradient(Accelerator(torch.device("cpu"), "bf16")), gradient(CPU))


class Late(nn.Linear):
    """Makes a layer in its first pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        if not hasattr(self, "last"):
            self.last = nn.Linear(2, 2)
        return self.last(super().forward(inputs))


class Anew(nn.Linear):
    """Makes its weight anew in each pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.weight = nn.Parameter(2 * self.weight.detach())
        return super().forward(inputs)


@pytest.mark.parametrize(("kind", "name"), [(Late, "last.weight"), (Anew, "weight")])
def test_parameters_that_are_made_while_the_model_computes_are_refused(kind, name):
    model = made(lambda: FlatModel(kind(3, 2)))
    with pytest.raises(OffbeatError, match=rf"^the model makes its parameter {name} while it computes, .* __init__"):
        check_fit(model, cross_entropy, LITTLE["inputs"], LITTLE["labels"])
