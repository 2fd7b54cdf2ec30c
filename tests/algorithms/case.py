"""Contract cases: an algorithm, and what the contract leaves open about it."""

import dataclasses
import importlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms import ALGORITHMS, Algorithm, LocalPlan, Update
from tests.effort import IS_LONG

LENGTH = 3
PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)
VECTORS = torch.tensor(np.random.default_rng(8).standard_normal((32, LENGTH)), dtype=torch.float32)


class Deferred:
    """A promise that counts how often it was resolved."""

    def __init__(self, vector: Tensor) -> None:
        self.vector = vector
        self.resolved = 0

    def resolve(self) -> Tensor:
        self.resolved += 1
        return self.vector


@dataclasses.dataclass(frozen=True)
class Case:
    """An algorithm, and what the contract leaves open that is to be known of it."""

    name: str
    make: Callable[[], Algorithm]
    places: int
    """Clients asked in a round, or at work at the same time where there are no rounds."""
    clients: int = 6
    own_plan: bool = False
    """The algorithm changes the run's plan."""
    plain_gradients: bool = False
    """Clients take plain steps: no momentum, no proximal term, no compression."""
    takes_all_comers: bool = False
    """A round takes in all clients until the first of them is back, and nobody after that."""
    idle_versions: bool = False
    """There is a version at every tick, also if nothing came."""
    arrival_groups: bool = False
    """Clients that were heard wait for their group, which has a deadline."""
    delay_bound: float = math.inf
    """Updates of this staleness and more are not wanted."""
    also_broken: tuple[dict[str, Any], ...] = ()
    """What else an update that is wanted may not claim."""

    def started(self) -> Algorithm:
        algorithm = self.make()
        algorithm.start(torch.ones(LENGTH), self.clients)
        return algorithm

    def update(self, client: int, version: int, choice: int = 0, since: int | None = None) -> Update:
        """Return an update, one of 32 by ``choice``, with all that some algorithm asks for."""
        return Update(
            client,
            version,
            VECTORS[choice],
            examples=1 + choice,
            steps=1,
            normaliser=1.0 + choice % 3,
            base=VECTORS[version % 32],
            since=since,
            step_seconds=0.05 * (choice % 4),
            upload_seconds=0.3 * (choice % 5),
            plan=PLAN,
        )

    def busy(self, plan: LocalPlan) -> Algorithm:
        """Return the algorithm after everybody wanted was assigned and heard; if it has a clock, again after a tick."""
        algorithm = self.started()
        self._let_work(algorithm, range(self.places), plan)
        if algorithm.period is not None:
            algorithm.tick()
            self._let_work(
                algorithm, [c for c in range(self.places) if algorithm.returns_in(c) == algorithm.round], plan
            )
        return algorithm

    def _let_work(self, algorithm: Algorithm, clients: Iterable[int], plan: LocalPlan) -> None:
        for client in clients:
            algorithm.assign(client, plan)
            algorithm.receive(self.update(client, algorithm.version, client))


def started(
    algorithm: Algorithm[Any],
    model: tuple[float, ...] = (0.0,),
    clients: int = 9,
    data_weights: Tensor | None = None,
) -> Algorithm[Any]:
    """Return the algorithm, started."""
    algorithm.start(torch.tensor(model), clients, data_weights)
    return algorithm


def at_work(algorithm: Algorithm[Any], model: tuple[float, ...] = (0.0,), clients: int = 9) -> Algorithm[Any]:
    """Return the algorithm, started, with work for clients 0, 1, 2, … until no client is wanted."""
    started(algorithm, model, clients)
    for client in range(algorithm.slots()):
        algorithm.assign(client, PLAN)
    return algorithm


def built_in() -> list[str]:
    """Return the names of the algorithms in ``offbeat.algorithms``, without those of other packages."""
    return [name for name, kind in ALGORITHMS.items() if kind.__module__.startswith("offbeat.algorithms.")]


def cases_of(name: str) -> list[Case]:
    """Return ``CASES`` of an algorithm's test module; none if the module or the list is missing."""
    module = f"tests.algorithms.test_{name}"
    try:
        return getattr(importlib.import_module(module), "CASES", [])
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return []


def all_cases(clients: int | None = None) -> dict[str, Case]:
    """Return the cases of all built-in algorithms by name; only those of N = ``clients`` if that is given."""
    cases = [case for name in built_in() for case in cases_of(name)]
    return {case.name: case for case in cases if clients in (None, case.clients)}


def first_of_each(key: Callable[[Algorithm], Any], clients: int | None = None) -> dict[str, Case]:
    """Return the first case for each value of ``key``; in a long test all cases."""
    cases = all_cases(clients)
    firsts = {key(case.make()): name for name, case in reversed(cases.items())}
    return {name: case for name, case in cases.items() if IS_LONG or name in firsts.values()}


def by_parts(algorithm: Algorithm) -> Any:
    """The differences that a coordinator and a simulation see: classes of parts, down vectors, cancelled visits."""
    cancels = type(algorithm).cancelled is not Algorithm.cancelled
    return type(algorithm.schedule), type(algorithm.buffer), algorithm.corrects_gradients, cancels


def by_class(algorithm: Algorithm) -> Any:
    """An algorithm's class, and what its buffer is."""
    return type(algorithm), type(algorithm.buffer), algorithm.buffer.linear
