import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from offbeat.algorithms import (
    Algorithm,
    AsyncCommSGD,
    FedAsync,
    FedAvg,
    FedBuff,
    FedFa,
    FedLaAvg,
    FedLuck,
    FedNova,
    LocalPlan,
    Port,
    SequentialSGD,
    Update,
)
from offbeat.algorithms.components.patterns import full, imbalanced, random, round_robin
from offbeat.algorithms.components.server_optimizer import adagrad, adam, momentum
from offbeat.algorithms.components.staleness import hinge
from offbeat.algorithms.components.step_sizes import inverse_time
from offbeat.algorithms.mifa import MIFA
from offbeat.algorithms.scaffold import SCAFFOLD

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


BAD_BASES = ({"base": None}, {"base": torch.zeros(LENGTH + 1)}, {"base": torch.zeros(LENGTH, dtype=torch.float64)})
BAD_TIMES = ({"step_seconds": -1.0}, {"upload_seconds": float("nan")}, {"step_seconds": float("inf")})


def _pattern_case(name: str, **parameters: Any) -> Case:
    return Case(
        f"async_comm_sgd {name}", lambda: AsyncCommSGD(**parameters), places=6, own_plan=True, idle_versions=True
    )


CASES = [
    Case("fedavg", lambda: FedAvg(cohort=2, server_lr=0.9), 2),
    Case("fedavg over-selecting", lambda: FedAvg(cohort=3, over_selection=1.3, weighting="uniform"), 4),
    Case("fedavg everybody", lambda: FedAvg(cohort=6, over_selection=2.0, server_optimizer=momentum()), 6),
    Case("fednova", lambda: FedNova(cohort=2, server_lr=0.9), 2),
    Case("fednova over-selecting", lambda: FedNova(cohort=3, over_selection=1.3, server_optimizer=adam()), 4),
    Case("fedlaavg", lambda: FedLaAvg(cohort=2, server_lr=0.9), 2, also_broken=({"since": 10**6},)),
    Case("fedlaavg everybody", lambda: FedLaAvg(cohort=6, server_optimizer=adam()), 6, also_broken=({"since": -1},)),
    Case("fedlaavg keeping", lambda: FedLaAvg(cohort=3, server_keeps_updates=True), 3, also_broken=({"since": -1},)),
    Case("mifa", lambda: MIFA(server_lr=0.9), 6, takes_all_comers=True, also_broken=({"since": 10**6},)),
    Case(
        "mifa keeping",
        lambda: MIFA(server_keeps_updates=True, server_optimizer=adam()),
        6,
        takes_all_comers=True,
        also_broken=({"since": -1},),
    ),
    Case(
        "scaffold",
        lambda: SCAFFOLD(cohort=3, server_lr=0.9, over_selection=1.3),
        4,
        plain_gradients=True,
        also_broken=({"since": 10**6}, {"plan": None}, {"steps": 0}),
    ),
    Case("scaffold adam", lambda: SCAFFOLD(cohort=6, server_optimizer=adam()), 6, plain_gradients=True),
    Case("fedasync", lambda: FedAsync(concurrency=3), 3),
    Case("fedbuff", lambda: FedBuff(buffer_size=3, concurrency=4), 4),
    Case("fedbuff one by one", lambda: FedBuff(buffer_size=1, staleness=hinge(1, 1), concurrency=2), 2),
    Case("fedbuff adam", lambda: FedBuff(buffer_size=2, concurrency=6, server_optimizer=adam()), 6),
    Case("fedbuff adagrad", lambda: FedBuff(buffer_size=2, concurrency=6, server_optimizer=adagrad()), 6),
    Case("fedfa", lambda: FedFa(window=4, server_lr=0.9, concurrency=4), 4),
    Case("fedfa one by one", lambda: FedFa(window=1, concurrency=2, server_optimizer=momentum()), 2),
    Case("fedfa every second", lambda: FedFa(window=3, release_every=2, concurrency=6, server_optimizer=adam()), 6),
    Case("fedfa normalising", lambda: FedFa(window=2, normalise=True, concurrency=5), 5),
    Case("fedfa params", lambda: FedFa(window=3, transmit="params", concurrency=4), 4),
    Case("port", lambda: Port(min_clients=3, staleness_bound=1, concurrency=4), 4, also_broken=BAD_BASES),
    Case(
        "port waiting",
        lambda: Port(min_clients=1, staleness_bound=2, urgent_requests=False, concurrency=5, server_optimizer=adam()),
        5,
        also_broken=BAD_BASES,
    ),
    _pattern_case("round robin", pattern=round_robin(k=2), average=True),
    _pattern_case("full", pattern=full(3), step_sizes=inverse_time(), server_optimizer=momentum()),
    _pattern_case("random", pattern=random(p=0.4)),
    _pattern_case("imbalanced", pattern=imbalanced(), average=True),
    Case("fedluck", lambda: FedLuck(server_lr=0.9), 6, own_plan=True, also_broken=BAD_TIMES),
    Case(
        "fedluck normalising",
        lambda: FedLuck(period=3.0, steps=(2, 9), normalise=True, server_optimizer=adam()),
        6,
        own_plan=True,
        also_broken=(*BAD_TIMES, {"normaliser": 1e-39}),
    ),
    Case("sequential sgd", lambda: SequentialSGD(cohort=3), places=1, clients=1, own_plan=True),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """Each algorithm under the contract in turn."""
    return request.param


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return CASES


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
