"""Uploads to the target, for all seeds of a setting at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.algorithms.components import Update
from offbeat_studies.papers.displacement.world import Data, Visits, World, accuracies, load_data, train, visits


class _Server:
    """One seed's algorithm, and the models that its clients started from."""

    def __init__(self, algorithm: Algorithm, visits: Visits, world: World, length: int) -> None:
        self.algorithm, self.visits = algorithm, visits
        self._local = LocalPlan(steps=world.steps, batch_size=world.batch_size, lr=world.lr)
        self._started: dict[int, tuple[int, Tensor]] = {}
        algorithm.start(torch.zeros(length), world.clients)
        self._next = 0
        while algorithm.slots():
            self._assign()

    def _assign(self) -> None:
        self.algorithm.assign(int(self.visits.assigned[self._next]), self._local)
        self._started[self._next] = self.algorithm.version, self.algorithm.model
        self._next += 1

    def start_of(self, upload: int) -> Tensor:
        return self._started[int(self.visits.assignments[upload])][1]

    def receive(self, upload: int, end: Tensor) -> None:
        version, start = self._started.pop(int(self.visits.assignments[upload]))
        vector = end if self.algorithm.payload == "params" else start - end
        client = int(self.visits.clients[upload])
        self.algorithm.receive(Update(client, version, vector, 1, self._local.steps, float(self._local.steps)))
        self._assign()


def uploads_to_target(
    algorithms: Sequence[Algorithm], at_work: int, seeds: Sequence[int], world: World, lr: float
) -> list[int | None]:
    """Return each seed's uploads until the target accuracy; None beyond the budget.

    ``algorithms`` has one object for each seed, all with the same settings.
    """
    data = load_data(world.test_examples)
    length = data.inputs.shape[1] * data.one_hot.shape[1]
    servers = {
        seed: _Server(algorithm, visits(world, at_work, seed), world, length)  # pyright: ignore[reportArgumentType]
        for seed, algorithm in zip(seeds, algorithms, strict=True)
    }
    found: dict[int, int] = {}
    for upload in range(world.budget):
        _receive(list(servers.values()), upload, data, lr, world.steps)
        if (upload + 1) % world.every == 0:
            models = torch.stack([server.algorithm.model for server in servers.values()])
            finite = models.isfinite().all(1).tolist()
            for seed, accuracy, is_finite in zip(list(servers), accuracies(models, data), finite, strict=True):
                if not is_finite:  # it diverged
                    del servers[seed]
                elif accuracy >= world.target:
                    found[seed] = upload + 1
                    del servers[seed]
            if not servers:
                break
    return [found.get(seed) for seed in seeds]


def _receive(servers: Sequence[_Server], upload: int, data: Data, lr: float, steps: int) -> None:
    starts = torch.stack([server.start_of(upload) for server in servers])
    examples = torch.stack([torch.from_numpy(server.visits.examples[upload]) for server in servers]).numpy()
    for server, end in zip(servers, train(starts, examples, data, lr, steps), strict=True):
        server.receive(upload, end)


def mean_norm(world: World, seeds: Sequence[int], lr: float) -> float:
    """Return the mean ‖Δ‖ of visits from the initial model at a step size."""
    data = load_data(world.test_examples)
    rows = [visits(world, 1, seed).examples[: 2 * world.clients] for seed in seeds]  # pyright: ignore[reportArgumentType]
    examples = torch.cat([torch.from_numpy(row) for row in rows]).numpy()
    starts = torch.zeros(len(examples), data.inputs.shape[1] * data.one_hot.shape[1])
    return float(train(starts, examples, data, lr, world.steps).norm(dim=1).mean())
