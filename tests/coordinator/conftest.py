"""Helpers of the coordinator's tests."""

import torch

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator

CLIENTS = 6
LENGTH = 3
PLAN = LocalPlan(steps=2, batch_size=4, lr=0.1)


class Periodic(FedBuff):
    """Wants everybody, and opens a round at every tick."""

    period = 1.0
    ticks = 0

    @property
    def round(self):
        return self.ticks

    def tick(self):
        self.ticks += 1
        return False


def make(algorithm, record=None, **settings):
    """Return a coordinator of six clients and a model of three numbers."""
    return Coordinator(algorithm, torch.zeros(LENGTH), clients=CLIENTS, local=PLAN, seed=5, record=record, **settings)


def everybody_present(coordinator):
    """Let all clients be available."""
    for client in range(CLIENTS):
        coordinator.present(0.0, client)


def receive(coordinator, now, assignment, vector=None):
    """Hand in the update of an assignment."""
    vector = torch.ones(LENGTH) if vector is None else vector
    report = {"examples": 10, "steps": 2, "normaliser": 2.0, "base": torch.zeros(LENGTH)}
    return coordinator.receive(now, assignment.client, assignment.visit, vector, **report)
