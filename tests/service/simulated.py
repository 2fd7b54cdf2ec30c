"""A simulation whose calls are made again on a real server."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Workload
from tests.workloads import workload_of

LAYOUT = [("weight", (3, 4)), ("bias", (3,))]
INPUTS = torch.from_numpy(np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32))
LABELS = torch.from_numpy(np.sort(np.random.default_rng(2).integers(3, size=60)))  # so clients differ


def module() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(4, 3)


def initial_model() -> torch.Tensor:
    return FlatModel(module()).vector.clone()


def simulate(
    algorithm: Algorithm,
    plan: LocalPlan,
    step_seconds: Sequence[float],
    shards: list[np.ndarray],
    *,
    stop: Stop,
    record: Callable[[Any], None],
    loss_probability: Any = 0.0,
    lease_seconds: float = math.inf,
    workload: Workload | None = None,
    examples: Sequence[int] | None = None,
) -> Simulation:
    """Run a simulation to its end, and return it; its workload is that of this module by default."""
    clients = len(step_seconds)
    if workload is None:
        workload = workload_of(FlatModel(module()), inputs=INPUTS, labels=LABELS, shards=shards, seed=7)
    coordinator = Coordinator(
        algorithm,
        workload.model.vector.clone(),
        clients=clients,
        local=plan,
        seed=7,
        lease_seconds=lease_seconds,
        record=record,
        examples=examples,
    )
    devices = Devices(
        step_seconds=np.array(step_seconds),
        down=ConstantLink(np.full(clients, 100.0)),
        up=ConstantLink(np.full(clients, 50.0)),
        loss_probability=np.zeros(clients) + loss_probability,
        availability=Always(),
        when_away="pause",
    )
    trainer = Trainer(LoopBackend(workload))
    simulation = Simulation(
        coordinator,
        devices,
        trainer,
        evaluate=lambda _: (0.0, {}),
        evaluate_every_seconds=math.inf,
        stop=stop,
        seed=7,
    )
    for _ in simulation.run():
        pass
    return simulation
