from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.loop import LoopBackend
from tests.workloads import workload_of

SHARD_SIZES = (7, 23, 3, 12)  # examples a client
SEED = 5


def made(make: Callable[[], Any], seed: int = 3) -> Any:
    """Make a module, always the same; torch's own generator does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def data_of(sizes: tuple[int, ...], *shape: int, classes: int = 4) -> dict[str, Any]:
    """Return a trainer's data: clients of these sizes, inputs of this shape; the shards are not in order."""
    random = np.random.default_rng(1)
    total = sum(sizes)
    return {
        "loss": cross_entropy,
        "inputs": torch.from_numpy(random.normal(size=(total, *shape)).astype(np.float32)),
        "labels": torch.from_numpy(random.integers(classes, size=total)),
        "shards": np.split(random.permutation(total), np.cumsum(sizes)[:-1]),
        "seed": SEED,
    }


def assert_same(results: Any, expected: Any) -> None:
    for result, other in zip(results, expected, strict=True):
        assert torch.equal(result.vector, other.vector)
        assert result.loss == other.loss


def assert_alike(results: Any, expected: Any, factor: float = 1) -> None:
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result.vector, other.vector, rtol=1e-5 * factor, atol=1e-6 * factor)
        assert result.loss == pytest.approx(other.loss, rel=1e-5)


def assert_same_in_parts(trainer: Any, jobs: list[Job]) -> None:
    """Assert that a trainer's results do not depend on the division of ten jobs."""
    expected = trainer.train(jobs)
    for size in (1, 2, 3, 7):  # alone and last ones have a row that only fills up
        parts = [trainer.train(jobs[first : first + size]) for first in range(0, len(jobs), size)]
        assert_same([result for part in parts for result in part], expected)
    assert_same(trainer.train(jobs[::-1])[::-1], expected)


@pytest.fixture(autouse=True)
def torch_is_left_alone() -> Iterator[None]:
    """Fail a test that leaves torch's own generator changed, unless it changes it itself and puts it back."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture(scope="session")
def data() -> dict[str, Any]:
    return data_of(SHARD_SIZES, 2, 3)


@pytest.fixture(scope="session")
def inputs(data: dict[str, Any]) -> Tensor:
    return data["inputs"]


@pytest.fixture(scope="session")
def labels(data: dict[str, Any]) -> Tensor:
    return data["labels"]


@pytest.fixture(scope="session")
def shards(data: dict[str, Any]) -> list[NDArray[np.int64]]:
    return data["shards"]


@pytest.fixture
def network() -> Callable[..., nn.Module]:
    """Return a function that makes a small network, always with the same values."""

    def make(dropout: float = 0.0) -> nn.Module:
        layers = nn.Flatten, lambda: nn.Linear(6, 5), nn.Tanh, lambda: nn.Dropout(dropout), lambda: nn.Linear(5, 4)
        return made(lambda: nn.Sequential(*[layer() for layer in layers]), seed=11)

    return make


@pytest.fixture
def trainer(network, data):
    """Return a function that makes a trainer of the small network, or of another module."""

    def make(module=None, *, model=None, dropout=0.0, **more):
        return LoopBackend(workload_of(model or FlatModel(module or network(dropout)), **data | more))

    return make


@pytest.fixture
def job(network: Callable[..., nn.Module]) -> Callable[..., Job]:
    """Return a function that makes a job from the network's own values."""
    start = nn.utils.parameters_to_vector(network().parameters()).detach()

    def make(plan: Any, client: int = 1, visit: int = 0, start: Tensor = start, payload: Any = "params") -> Job:
        return Job(client=client, visit=visit, version=0, start=start, plan=plan, payload=payload)

    return make
