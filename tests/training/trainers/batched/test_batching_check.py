"""The check of models for the batched trainer, as ``make_trainer`` calls it."""

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn

from offbeat.algorithms import LocalPlan
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.batched.batching_check import batching_problem
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import data_of, made
from tests.training.separate_devices import META
from tests.training.trainers.conftest import PLAN, Noisy, Recurrent, linear
from tests.workloads import workload_of


class Branching(nn.Module):
    """Looks at its values, which a batch of models cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.linear(inputs)
        return outputs if outputs.sum() > 0 else -outputs


class Remembering(nn.Module):
    """Adds what it has seen in this visit to its outputs, in a tensor that is not a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.seen = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.linear(inputs) * self.seen


class Rounding(nn.Module):
    """Rounds by the number of models in the batch, as some kernels on some processors do."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return RoundByNumber.apply(inputs)


class Rough(nn.Module):
    """Gives a fifth more in a batch than alone, so that gradients differ by a few percent."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return MoreInBatches.apply(inputs)


class RoundByNumber(torch.autograd.Function):
    @staticmethod
    def forward(inputs):
        return inputs.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def vmap(info, dimensions, inputs):
        return inputs * (1 + 1e-6 * info.batch_size), dimensions[0]


class MoreInBatches(RoundByNumber):
    @staticmethod
    def vmap(info, dimensions, inputs):
        return inputs * 1.2, dimensions[0]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Branching(), r"\(RuntimeError: vmap"),
        (Noisy(), "random"),
        (nn.Sequential(nn.Linear(6, 3), Rounding()), "depend on the other clients"),
        (Remembering(), "its results differ"),
        (Recurrent(), "LSTM has no batched form"),
    ],
    ids=["branching", "noisy", "rounding", "remembering", "recurrent"],
)
def test_models_that_cannot_be_batched_are_refused_in_one_line(module, reason, choose):
    with pytest.raises(OffbeatError, match=rf"trainer = 'vmap': .*{reason}.*use 'loop'") as refusal:
        choose("vmap", module)
    assert "\n" not in str(refusal.value)
    choose("loop", module)


def test_dropout_is_not_batched_on_a_gpu():
    """There the loop's noise is the GPU's. On the CPU it is that of the batch."""

    def problem(accelerator):
        module = made(lambda: nn.Sequential(nn.Dropout(0.01), nn.Linear(6, 3)))
        workload = workload_of(FlatModel(module), **data_of((10, 2, 18), 6, classes=3)).to(accelerator)
        return batching_problem(VmapBackend(workload), LoopBackend(workload), PLAN)

    assert problem(META) == "in batches Dropout draws the CPU's random numbers, alone those of the GPU"
    assert problem(CPU) is None


def test_a_lower_precision_is_allowed_larger_differences():
    def make(precision):
        module = made(lambda: nn.Sequential(nn.Linear(6, 3), Rough()))
        workload = workload_of(FlatModel(module), **data_of((10, 2, 18), 6, classes=3))
        return make_trainer("vmap", workload.to(Accelerator(torch.device("cpu"), precision)), plan=PLAN)

    with pytest.raises(OffbeatError, match="its results differ"):
        make("float32")
    assert type(make("bf16").backend) is VmapBackend


def test_the_check_is_short_where_visits_are_long(choose, monkeypatch):
    tried, train = [], VmapBackend.train

    def noted(self, jobs):
        tried.extend(job.plan.steps for job in jobs)
        return train(self, jobs)

    monkeypatch.setattr(VmapBackend, "train", noted)
    choose("vmap", linear(), LocalPlan(steps=2_000_000, batch_size=4, lr=0.1))
    assert 2 <= max(tried) <= 100


@pytest.mark.parametrize("lr", [1e-8, 1e20, (1e20, 1.0)])
def test_a_run_that_will_diverge_is_accepted(lr, choose):
    plan = LocalPlan(steps=2, batch_size=4, lr=lr)
    assert type(choose("vmap", linear(), plan).backend) is VmapBackend


def test_adamw_may_make_much_of_rounding(choose):
    """Each group has one channel, so the gradient of its bias is 0 but for rounding; AdamW's step is as long as any."""
    shape = nn.Unflatten(1, (1, 2, 3))
    module = made(lambda: nn.Sequential(shape, nn.Conv2d(1, 8, 2), nn.GroupNorm(8, 8), nn.Flatten(), nn.Linear(16, 3)))
    plan = LocalPlan(steps=2, batch_size=4, lr=0.1, optimizer="adamw")
    assert type(choose("vmap", module, plan).backend) is VmapBackend


@pytest.mark.parametrize("mu", [20.0, 1e4])
def test_a_strong_proximal_term_is_tried_with_stable_steps(mu, choose):
    plan = LocalPlan(steps=2, batch_size=4, lr=1 / mu, mu=mu)
    assert type(choose("vmap", linear(), plan).backend) is VmapBackend


def test_the_model_does_not_change(choose):
    module = linear()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    generator = torch.get_rng_state()
    choose("vmap", module)
    assert all(torch.equal(now, then) for now, then in zip(module.parameters(), before, strict=True))
    assert torch.equal(torch.get_rng_state(), generator)
