"""Updates a second of fluke: FedAvg in one process, models in memory.

Left out are construction and what fluke does after the last round, which is to send the model to everyone. fluke
counts epochs, so W1's clients have 50 of their 60 examples: an epoch is ten steps of batch 5. W2's is so anyway.
"""

# pyright: reportMissingImports=false

import time
from collections.abc import Callable
from functools import partial

import torch
import torchvision_operators

torchvision_operators.define()  # before the imports that need it

from fluke import FlukeENV  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # noqa: E402
from workloads import Workload  # noqa: E402

PACKAGE = "fluke-fl"


class RoundTimes:
    """The beginning of the rounds and the end of each."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def start_round(self, round: int, global_model: object) -> None:  # noqa: A002 - fluke passes it by this name
        """Note when the first round begins."""
        if not self.times:
            self.times.append(time.perf_counter())

    def end_round(self, round: int) -> None:  # noqa: A002
        """Note the time."""
        self.times.append(time.perf_counter())


def loader(workload: Workload, index: int) -> FastDataLoader:
    """Return a client's examples, as fluke itself would hold them."""
    inputs, labels = (tensor[: workload.steps * workload.batch_size] for tensor in workload.client(index))
    return FastDataLoader(inputs, labels, num_labels=10, batch_size=workload.batch_size, shuffle=True)


def fedavg(workload: Workload) -> float:
    """Return updates a second of some rounds."""
    torch.set_num_threads(1)
    FlukeENV().set_eval_cfg(server=False)
    loaders = [loader(workload, index) for index in range(workload.clients)]
    algorithm = FedAVG(
        workload.clients,
        DataSplitter(DummyDataContainer(loaders, [None] * workload.clients, None, num_classes=10)),
        {
            "model": workload.make(),
            "client": {
                "batch_size": workload.batch_size,
                "local_epochs": 1,
                "loss": "CrossEntropyLoss",
                "optimizer": {"name": "SGD", "lr": workload.lr},
                "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1.0},
            },
            "server": {"weighted": False},
        },
    )
    rounds = RoundTimes()
    algorithm.attach(rounds)
    algorithm.run(workload.rounds, workload.cohort / workload.clients)
    return workload.rounds * workload.cohort / (rounds.times[-1] - rounds.times[0])


def rows(workload: Workload) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured."""
    return {("fedavg", "-", ""): partial(fedavg, workload)}
