"""Models, and a trainer for them, that several tests of trainers need."""

import numpy as np
import pytest
import torch
from torch import nn

from offbeat.algorithms import LocalPlan
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.choice import make_trainer
from tests.workloads import workload_of

PLAN = LocalPlan(steps=9, batch_size=4, lr=0.1)


class Noisy(nn.Module):
    """Draws random numbers other than dropout's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(inputs) * torch.rand(1)


class Recurrent(nn.Module):
    """Has a layer that takes one model at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.lstm(inputs)[0]


def made(make):
    """Make a module, always the same: not all weights show how bits are rounded. Torch's generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


def linear(inputs: int = 6) -> nn.Module:
    return made(lambda: models.softmax_regression((inputs,), 3))


@pytest.fixture
def choose():
    def build(name, module, plan=PLAN, *, inputs=6, **more):
        random = np.random.default_rng(1)
        return make_trainer(
            name,
            workload_of(
                FlatModel(module),
                inputs=torch.from_numpy(random.normal(size=(30, inputs)).astype(np.float32)),
                labels=torch.from_numpy(random.integers(3, size=30)),
                shards=[np.arange(10), np.arange(10, 12), np.arange(12, 30)],
                seed=4,
                **more,
            ),
            plan=plan,
        )

    return build
