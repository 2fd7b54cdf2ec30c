"""AdamW with a step size that decays: the simulator and real clients of a server come to the same model."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from offbeat_client.http.connection import Backoff
from offbeat_core.lr_decay import exponential
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedAvg, LocalPlan
from offbeat.service.client import LocalSGD, run_client
from offbeat.simulation.totals import Stop
from tests.service.conftest import running
from tests.service.simulated import INPUTS, LABELS, LAYOUT, initial_model, module, simulate

CLIENTS, ROUNDS = 2, 4
PLAN = LocalPlan(steps=3, batch_size=4, lr=0.1, weight_decay=0.05, optimizer="adamw", lr_decay=exponential(0.6))
SHARDS = [np.arange(16), np.arange(16, 48)]  # the weights are powers of two, so the order of a sum does not matter


def fedavg():
    return FedAvg(cohort=CLIENTS)  # all clients in each round


def simulated(plan):
    algorithm = fedavg()
    simulate(algorithm, plan, [1.0] * CLIENTS, SHARDS, stop=Stop(versions=ROUNDS), record=lambda _: None)
    return algorithm.model


def test_both_worlds_come_to_the_same_model(tmp_path):
    def client(number):
        return LocalSGD(module(), cross_entropy, (INPUTS[SHARDS[number]], LABELS[SHARDS[number]]))

    model = {"model": initial_model(), "layout": LAYOUT}
    with running(tmp_path / "server", fedavg, clients=CLIENTS, plan=PLAN, stop_versions=ROUNDS, **model) as server:

        def join(name):
            backoff = Backoff(first_seconds=0.001, largest_seconds=0.002, attempts=4)
            return run_client(
                server.url, client, tmp_path / name, enrolment_token=server.enrolment_token, backoff=backoff
            )

        with ThreadPoolExecutor() as pool:
            assert list(pool.map(join, "ab")) == [ROUNDS] * CLIENTS
        served = server.service.engine.coordinator.algorithm.model
    assert torch.equal(served, simulated(PLAN))
    for other in (replace(PLAN, optimizer="sgd"), replace(PLAN, lr_decay=None)):
        assert not torch.allclose(served, simulated(other), atol=1e-3)
