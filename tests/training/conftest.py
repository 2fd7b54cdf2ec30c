from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.trainer import Job
from tests.workloads import workload_of

SHARD_SIZES = (7, 23, 3, 12)  # examples a client
SEED = 5


@pytest.fixture(autouse=True)
def torch_is_left_alone() -> Iterator[None]:
    """Fail a test that leaves torch's own generator changed, unless it changes it itself and puts it back."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture(scope="session")
def inputs() -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(size=(sum(SHARD_SIZES), 2, 3)).astype(np.float32))


@pytest.fixture(scope="session")
def labels() -> Tensor:
    return torch.from_numpy(np.random.default_rng(2).integers(4, size=sum(SHARD_SIZES)))


@pytest.fixture(scope="session")
def shards() -> list[NDArray[np.int64]]:
    """Return the numbers of each client's examples.

    They are not in order, so that numbers within a shard differ from global ones.
    """
    order = np.random.default_rng(3).permutation(sum(SHARD_SIZES))
    return np.split(order, np.cumsum(SHARD_SIZES)[:-1])


@pytest.fixture
def network() -> Callable[..., nn.Module]:
    """Return a function that makes a small network, always with the same values."""

    def make(dropout: float = 0.0) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(11)
            return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 4))

    return make


@pytest.fixture
def trainer(network, inputs, labels, shards):
    """Return a function that makes a trainer of the small network, or of another module."""

    def make(module=None, *, model=None, dropout=0.0, seed=SEED):
        model = model or FlatModel(module or network(dropout))
        return LoopTrainer(workload_of(model, loss=loss, inputs=inputs, labels=labels, shards=shards, seed=seed))

    return make


@pytest.fixture
def job(network: Callable[..., nn.Module]) -> Callable[..., Job]:
    """Return a function that makes a job from the network's own values."""
    start = nn.utils.parameters_to_vector(network().parameters()).detach()

    def make(plan: Any, client: int = 1, visit: int = 0, start: Tensor = start, payload: Any = "params") -> Job:
        return Job(client=client, visit=visit, version=0, start=start, plan=plan, payload=payload)

    return make
