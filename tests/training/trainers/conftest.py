"""Models, and a trainer for them, that several tests of trainers need."""

import pytest
import torch
from torch import nn

from offbeat.algorithms import LocalPlan
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.choice import make_trainer
from tests.training.conftest import data_of, made
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


def linear(inputs: int = 6) -> nn.Module:
    return made(lambda: models.softmax_regression((inputs,), 3))


@pytest.fixture
def choose():
    def build(name, module, plan=PLAN, *, inputs=6, workers=1):
        data = data_of((10, 2, 18), inputs, classes=3)
        return make_trainer(name, workload_of(FlatModel(module), **data), plan=plan, workers=workers)

    return build
