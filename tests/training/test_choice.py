import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.errors import OffbeatError
from offbeat.training import models
from offbeat.training.choice import make_trainer
from offbeat.training.flat_model import FlatModel
from offbeat.training.loop import LoopTrainer
from offbeat.training.vmap import VmapTrainer

PLAN = LocalPlan(steps=5, batch_size=4, lr=0.1)


class Branching(nn.Module):
    """Looks at its values, which a batch of models cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.linear(inputs)
        return outputs if outputs.sum() > 0 else -outputs


class Remembering(nn.Module):
    """Adds what it has seen in this visit to its outputs, in a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.seen = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.linear(inputs) * self.seen


class Recurrent(nn.Module):
    """Has a layer that takes one model at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.lstm(inputs)[0]


def linear(inputs: int = 6) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return models.softmax_regression((inputs,), 3)


@pytest.fixture
def choose():
    def build(name, module, plan=PLAN):
        random = np.random.default_rng(1)
        return make_trainer(
            name,
            FlatModel(module),
            plan=plan,
            loss=cross_entropy,
            inputs=torch.from_numpy(random.normal(size=(30, 6)).astype(np.float32)),
            labels=torch.from_numpy(random.integers(3, size=30)),
            shards=[np.arange(10), np.arange(10, 12), np.arange(12, 30)],
            seed=4,
        )

    return build


def test_a_name_stands_for_a_trainer(choose):
    assert type(choose("loop", linear())) is LoopTrainer
    assert type(choose("vmap", linear())) is VmapTrainer


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Branching(), "RuntimeError"),
        (nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)), "random"),
        (Remembering(), "learns something else"),
        (Recurrent(), "LSTM has no batched form"),
    ],
    ids=["branching", "dropout", "remembering", "recurrent"],
)
def test_what_cannot_be_batched_is_refused_in_one_line(module, reason, choose):
    with pytest.raises(OffbeatError, match=rf"trainer = 'vmap': .*{reason}.*take 'loop'") as refusal:
        choose("vmap", module)
    assert "\n" not in str(refusal.value)
    choose("loop", module)


@pytest.mark.parametrize("lr", [1e-8, 1e20, (1e20, 1.0)])
def test_whether_the_run_diverges_is_not_asked_here(lr, choose):
    plan = LocalPlan(steps=2, batch_size=4, lr=lr)
    assert type(choose("vmap", linear(), plan)) is VmapTrainer


def test_the_model_is_left_as_it_was(choose):
    module = linear()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    generator = torch.get_rng_state()
    choose("vmap", module)
    assert all(torch.equal(now, then) for now, then in zip(module.parameters(), before, strict=True))
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize(("inputs", "limit"), [(6, 128), (10_000, 17), (10_000_000, 8)])
def test_large_models_come_in_small_batches(inputs, limit):
    random = np.random.default_rng(1)
    trainer = make_trainer(
        "vmap",
        FlatModel(linear(inputs)),
        plan=LocalPlan(steps=1, batch_size=1, lr=0.1),
        loss=cross_entropy,
        inputs=torch.from_numpy(random.normal(size=(2, inputs)).astype(np.float32)),
        labels=torch.tensor([0, 2]),
        shards=[np.array([0]), np.array([1])],
        seed=4,
    )
    assert trainer.batch_limit == limit
