from collections.abc import Callable

import numpy as np
import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.population.devices import Devices
from offbeat.simulation.records import Stop
from offbeat.simulation.simulator import Simulation
from offbeat.training.trainer import Result, upload


class QuadraticTrainer:
    """Client i's loss is (w − target_i)²/2, one exact gradient step a local step."""

    def __init__(self, targets, batch_limit=1):
        self.targets = targets
        self.batch_limit = batch_limit
        self.batches = []

    def examples(self, client):
        return client + 1

    def train(self, jobs):
        self.batches.append([(job.client, job.visit) for job in jobs])
        results = []
        for job in jobs:
            end = job.start.clone()
            for _ in range(job.plan.steps):
                end = end - job.plan.lr * (end - self.targets[job.client])
            results.append(Result(upload(job.payload, job.start, end), 0.0))
        return results


@pytest.fixture
def simulate() -> Callable[..., Simulation]:
    """Builds a small world; by default four clients, client i taking i + 1 seconds a step, and free transfers."""

    def build(
        algorithm,
        *,
        step_seconds=(1.0, 2.0, 3.0, 4.0),
        loss_probability=None,
        down=1e12,
        up=1e12,
        stop=None,
        every=10.0,
        trainer=None,
        plan=None,
        record=None,
        seed=1,
        length=2,
        **server,
    ) -> Simulation:
        clients = len(step_seconds)
        coordinator = Coordinator(
            algorithm,
            torch.zeros(length),
            clients=clients,
            local=plan or LocalPlan(steps=1, batch_size=1, lr=0.5),
            seed=seed,
            record=record,
            **server,
        )
        devices = Devices(
            step_seconds=np.array(step_seconds),
            down_bytes_per_second=np.full(clients, float(down)),
            up_bytes_per_second=np.full(clients, float(up)),
            loss_probability=np.zeros(clients) if loss_probability is None else np.array(loss_probability),
        )
        targets = torch.arange(clients, dtype=torch.float32)[:, None] + torch.tensor([0.0, 10.0])[:length]
        return Simulation(
            coordinator,
            devices,
            trainer or QuadraticTrainer(targets),
            evaluate=lambda model: (float(model.square().sum()), 0.5),
            evaluate_every_seconds=every,
            stop=stop or Stop(virtual_seconds=20.0),
            seed=seed,
        )

    build.trainer = QuadraticTrainer
    return build
