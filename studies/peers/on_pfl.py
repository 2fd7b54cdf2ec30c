"""Updates per second of Apple's pfl-research: FedAvg.

Its simulated backend runs in one process. Construction and the first round, in which pfl evaluates whatever its
options say, are left out. pfl takes its minibatches in the order of the examples and keeps them from one round to the
next; the first ten of a client's twelve are W1's ten steps.

The row with two threads needs two free cores: if other programs compute on them, PyTorch's threads wait for each other,
and the row says little.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from workloads import W1, Workload

PACKAGE = "pfl"


class Classifier(nn.Module):
    """A model with the two methods that pfl asks for."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return what the clients minimise."""
        return cross_entropy(self.inside(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
        """Return what the first round evaluates."""
        return {"loss": Weighted(self.loss(inputs, labels).item(), 1)}


class RoundTimes(TrainingProcessCallback):
    """The end of each round."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        """Note the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        return False, Metrics()


def fedavg(workload: Workload, clients: list[Dataset], threads: int) -> float:
    """Return updates a second of some rounds."""
    torch.set_num_threads(threads)
    module = Classifier(workload.make())
    data = FederatedDataset(clients.__getitem__, get_user_sampler("random", range(workload.clients)))
    times = RoundTimes()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=1 + workload.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=workload.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data),
        PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_batch_size=workload.batch_size,
            local_num_epochs=None,
            local_num_steps=workload.steps,
            local_learning_rate=workload.lr,
        ),
        NNEvalHyperParams(local_batch_size=None),
        [times],
        send_metrics_to_platform=False,
    )
    return workload.rounds * workload.cohort / (times.ends[-1] - times.ends[0])


def rows(workload: Workload) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured."""
    clients = [Dataset(workload.client(index)) for index in range(workload.clients)]
    return {
        ("fedavg", "-", f", {threads} threads" if threads > 1 else ""): partial(fedavg, workload, clients, threads)
        for threads in ((1,) if workload is W1 else (1, 2))
    }
