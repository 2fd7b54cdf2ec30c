from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.simulation.simulator import Simulation
from offbeat.worlds.population import Population, build_population
from offbeat.worlds.simulation import build_simulation
from tests.worlds.private_simulations import CLIENTS, FEDBUFF

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, inputs):
        return self.layers(inputs)

def bare():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))

def normed():
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))

def number():
    return 3

def data(examples=30):
    inputs = torch.randn(examples, 1, 8, 8, generator=torch.Generator().manual_seed(7))
    labels = torch.arange(examples) % 10
    pair = torch.utils.data.TensorDataset(inputs, labels)
    return pair, pair

def ragged():
    part = [{"input_ids": [1, 2, 3][: 1 + label], "label": label} for label in (0, 1, 2)]
    return part, part

def pad(examples):
    ids = [torch.tensor(example["input_ids"]) for example in examples]
    ids = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    return {"input_ids": ids, "attention_mask": ids > 0, "labels": [example["label"] for example in examples]}

def fails(examples):
    return examples[0]["inputs"]

def hinge(outputs, labels):
    return nn.functional.multi_margin_loss(outputs, labels)

def per_example(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels, reduction="none")

def top_two(outputs, labels):
    return (outputs.topk(2).indices == labels[:, None]).any(dim=1).float().mean()
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    """The path of a file with a user's code."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


@pytest.fixture
def population(experiment: Callable[..., Experiment], digits: Dataset) -> Callable[..., Population]:
    """Return a function that builds the small experiment's population of 20 clients, changed as by ``--set``."""

    def make(*changes: str, seed: int = 1, dataset: Dataset = digits) -> Population:
        return build_population(experiment("population.clients=20", *changes).population, dataset, seed)

    return make


@pytest.fixture
def simulation(experiment: Callable[..., Experiment], digits: Dataset) -> Callable[..., Simulation]:
    """Return a function that builds the small experiment with FedBuff of four and a ``[privacy]``."""

    def build(privacy: str | None, *changes: str, seed: int = 1, versions: int = 6) -> Simulation:
        world = (f"population.clients={CLIENTS}", f"stop={{ versions = {versions} }}", "evaluate.every_versions=2")
        world = (*world, "evaluate={ every_versions = 2, target = 0.5 }", FEDBUFF, *changes)
        world = world if privacy is None else (*world, f"privacy={privacy}")
        return build_simulation(experiment(*world), "mine", seed, digits)

    return build


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a file next to the experiment's, and returns its name."""

    def write(content: str, name: str = "file.csv") -> str:
        (tmp_path / name).write_text(content)
        return name

    return write


@pytest.fixture(scope="session")
def tokens() -> Callable[[int], Dataset]:
    """Return a function that makes a data set of four texts, with a vocabulary of this size."""

    def make(count: int) -> Dataset:
        inputs, labels = np.arange(20, dtype=np.int64).reshape(4, 5) % count, np.array([0, 1, 0, 1], np.int64)
        return Dataset("words", inputs, labels, inputs, labels, classes=2, tokens=count)

    return make
