from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan, Update
from tests.algorithms.case import PLAN, Case, Deferred, at_work, by_class, by_parts, first_of_each


@pytest.fixture(params=first_of_each(by_class).values(), ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """Each algorithm under the contract in turn."""
    return request.param


@pytest.fixture(params=first_of_each(by_parts).values(), ids=lambda case: case.name)
def kind(request: pytest.FixtureRequest) -> Case:
    """An algorithm of each kind of schedule and buffer in turn, for what these two and the base class do."""
    return request.param


@pytest.fixture(scope="session")
def deferred() -> type[Deferred]:
    return Deferred


@pytest.fixture(scope="session")
def vector() -> Callable[..., Tensor]:
    return lambda *entries: torch.tensor(entries, dtype=torch.float32)


@pytest.fixture(scope="session")
def plan() -> LocalPlan:
    return PLAN


@pytest.fixture(scope="session")
def upload() -> Callable[..., Update]:
    """Return a function that makes an update from a client, a version and the vector's entries."""

    def make(client: int, version: int, *entries: float, examples: int = 1) -> Update:
        return Update(client, version, torch.tensor(entries, dtype=torch.float32), examples, steps=1, normaliser=1.0)

    return make


@pytest.fixture(scope="session")
def begin() -> Callable[..., Algorithm[Any]]:
    return at_work
