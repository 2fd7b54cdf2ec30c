from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from offbeat.algorithms import LocalPlan, Update


class Deferred:
    """A promise that counts how often it was resolved."""

    def __init__(self, vector: Tensor) -> None:
        self.vector = vector
        self.resolved = 0

    def resolve(self) -> Tensor:
        self.resolved += 1
        return self.vector


@pytest.fixture(scope="session")
def deferred() -> type[Deferred]:
    return Deferred


@pytest.fixture(scope="session")
def vector() -> Callable[..., Tensor]:
    return lambda *entries: torch.tensor(entries, dtype=torch.float32)


@pytest.fixture(scope="session")
def plan() -> LocalPlan:
    return LocalPlan(steps=1, batch_size=1, lr=0.1)


@pytest.fixture(scope="session")
def upload() -> Callable[..., Update]:
    """Return a function that makes an update from a client, a version and the vector's entries."""

    def make(client: int, version: int, *entries: float, examples: int = 1) -> Update:
        return Update(client, version, torch.tensor(entries, dtype=torch.float32), examples, steps=1, normaliser=1.0)

    return make
