"""Updates per second of APPFL: FedAvg, FedBuff and FedAsync in virtual time.

APPFL's simulator (``appfl.vsim``) drives the agents that it deploys, one client at a time in one process. Construction
is left out. An update counts when its client is trained, which APPFL does when the client begins. Durations are uniform
between 0.5 and 1.5. APPFL collects garbage after every call by default (``optimize_memory``); that and its log are off
here.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import logging
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torchvision_operators

torchvision_operators.define()  # before the imports that need it

from appfl.agent.sim_client import SimClientAgent  # noqa: E402
from appfl.agent.sim_server import SimServerAgent  # noqa: E402
from appfl.vsim import AsyncSimDriver, ClientProfile, SyncSimDriver  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402
from workloads import Workload  # noqa: E402

PACKAGE = "appfl"

# Every agent has a log file of its own, in the working directory.
folder = tempfile.TemporaryDirectory()


class Client(SimClientAgent):
    """A client with the workload's model, that counts how often it is trained."""

    trained = 0

    def __init__(self, workload: Workload, index: int, train: dict[str, Any]) -> None:
        self.model = workload.make()
        self.metric = lambda labels, outputs: 0.0
        config = {"train_configs": train, "model_configs": {}, "optimize_memory": False}
        super().__init__(config, client_id=str(index), client_dataset=TensorDataset(*workload.client(index)))

    def train(self, **kwargs: Any) -> None:
        """Train it, and count."""
        Client.trained += 1
        super().train(**kwargs)


class Server(SimServerAgent):
    """A server with the workload's model."""

    def __init__(self, workload: Workload, config: dict[str, Any]) -> None:
        self._make = workload.make
        super().__init__(config)

    def _load_model(self) -> None:
        self.model = self._make()


def agents(workload: Workload, server: dict[str, Any], train: dict[str, Any]) -> tuple[Server, list[Client]]:
    """Return the server's agent and those of the clients."""
    os.chdir(folder.name)
    logging.disable(logging.INFO)
    train = {
        "trainer": "VanillaTrainer",
        "mode": "step",
        "num_local_steps": workload.steps,
        "train_batch_size": workload.batch_size,
        "optim": "SGD",
        "optim_args": {"lr": workload.lr},
        "loss_fn": "CrossEntropyLoss",
        "optimize_memory": False,
        **train,
    }
    quick = {"optimize_memory": False}
    scheduler = {"scheduler_kwargs": quick, "num_clients": workload.clients}
    server = {**quick, **scheduler, **server, "aggregator_kwargs": {**quick, **server["aggregator_kwargs"]}}
    config = {"client_configs": {"train_configs": train}, "server_configs": server}
    return Server(workload, config), [Client(workload, index, train) for index in range(workload.clients)]


def profiles(workload: Workload) -> dict[str, ClientProfile]:
    """Return how fast clients are: uniform, and with a connection that takes no time."""
    uniform = random.Random(1)
    return {str(index): ClientProfile(uniform.uniform(0.5, 1.5), bandwidth=0.0) for index in range(workload.clients)}


def rounds(workload: Workload) -> float:
    """Return updates a second of FedAvg."""
    server = {"scheduler": "SyncScheduler", "aggregator": "FedAvgAggregator", "aggregator_kwargs": {}}
    driver = SyncSimDriver(
        *agents(workload, {**server, "num_global_epochs": workload.rounds}, {}),
        profiles(workload),
        participants_per_round=workload.cohort,
        target_rounds=workload.rounds,
        base_step_time=1.0,
        logger=logging.getLogger("appfl"),
    )
    return rate(driver)


def asynchronous(workload: Workload, aggregator: str, options: dict[str, Any], train: dict[str, Any]) -> float:
    """Return updates a second of an asynchronous algorithm."""
    driver = AsyncSimDriver(
        *agents(workload, server_of(aggregator, options, workload.rounds * workload.cohort), train),
        profiles(workload),
        max_in_flight=workload.cohort,
        base_step_time=1.0,
        logger=logging.getLogger("appfl"),
    )
    return rate(driver)


def server_of(aggregator: str, options: dict[str, Any], updates: int) -> dict[str, Any]:
    """Return the settings of an asynchronous server that stops after some updates."""
    return {
        "scheduler": "AsyncScheduler",
        "aggregator": aggregator,
        "aggregator_kwargs": {"staleness_fn": "polynomial", "staleness_fn_kwargs": {"a": 0.5}, **options},
        "num_global_epochs": updates,
    }


def rate(driver: SyncSimDriver | AsyncSimDriver) -> float:
    """Return updates a second of a whole simulation."""
    torch.set_num_threads(1)
    Client.trained = 0
    began = time.perf_counter()
    driver.run()
    return Client.trained / (time.perf_counter() - began)


def rows(workload: Workload) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured."""
    # APPFL divides every weight by the number of clients; these options make up for it.
    fedbuff = {"K": 10, "alpha": workload.clients / 10}
    fedasync = {"alpha": 0.6 * workload.clients}
    return {
        ("fedavg", "uniform", ""): partial(rounds, workload),
        ("fedbuff", "uniform", ""): partial(
            asynchronous, workload, "FedBuffAggregator", fedbuff, {"send_gradient": True}
        ),
        ("fedasync", "uniform", ""): partial(asynchronous, workload, "FedAsyncAggregator", fedasync, {}),
    }
