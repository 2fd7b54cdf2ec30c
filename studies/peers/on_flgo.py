"""Updates per second of FLGo: FedAvg, FedBuff and FedAsync.

FLGo runs in one process, on its virtual clock. Construction is left out. An update counts when its client is trained,
which FLGo does when it selects the client. For FedBuff and FedAsync a client needs between 50 and 149 ticks of the
clock, so that of a hundred clients at work one finishes in every tick, on average; several of them in the same tick are
one step of FLGo's FedAsync. Its FedAsync clients have the paper's proximal term. FLGo's data loader takes a client's
examples in order.
"""

# pyright: reportMissingImports=false

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import flgo
from flgo.algorithm import fedasync, fedavg, fedbuff
from flgo.experiment.logger import BasicLogger
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from workloads import W1, Workload

PACKAGE = "flgo"

# FLGo reads a task from a module, and imports it from below the working directory.
folder = tempfile.TemporaryDirectory()
TASK = """
from on_flgo import compute_loss, data_to_device
from torch.utils.data import TensorDataset
from workloads import {workload} as workload

train_data = [TensorDataset(*workload.client(index)) for index in range(workload.clients)]
get_model = workload.make
eval = None
"""


def data_to_device(batch: list[Tensor], device: object) -> list[Tensor]:
    """Leave a minibatch where it is."""
    return batch


def compute_loss(model: nn.Module, batch: list[Tensor], device: object) -> dict[str, Tensor]:
    """Return what the clients minimise."""
    inputs, labels = batch
    return {"loss": cross_entropy(model(inputs), labels)}


@cache
def task_of(workload: Workload) -> str:
    """Return the path of FLGo's task for a workload."""
    os.chdir(folder.name)
    sys.path.append(folder.name)
    config = Path("config.py")
    config.write_text(TASK.format(workload=workload.name))
    return flgo.gen_direct_task_from_file(workload.name, str(config))


def unwrapped(algorithm: ModuleType) -> type:
    """Return an algorithm with classes of its own.

    FLGo wraps methods of the classes it is given at every construction, so that a process's later runs would go through
    the wrappers of the earlier ones.
    """
    classes = {name: type(name, (getattr(algorithm, name),), {}) for name in ("Server", "Client")}
    return type(algorithm.__name__, (), classes)


def run(workload: Workload, algorithm: ModuleType, options: dict[str, Any]) -> float:
    """Return updates a second of as many updates as the workload's rounds have."""
    runner = flgo.init(
        task_of(workload),
        unwrapped(algorithm),
        {
            "proportion": workload.cohort / workload.clients,
            "num_steps": workload.steps,
            "batch_size": workload.batch_size,
            "learning_rate": workload.lr,
            "sample": "uniform",
            "aggregate": "uniform",
            "train_holdout": 0.0,
            "eval_interval": -1,
            "no_log_console": True,
            "no_tqdm": True,
            **options,
        },
        Logger=BasicLogger,
    )
    trained = 0

    def enough(server: Any) -> bool:
        """Count the clients of the step before; FLGo asks this between steps."""
        nonlocal trained
        trained += len(server.selected_clients)
        return trained >= workload.rounds * workload.cohort

    runner.register_exit_condition(enough)
    began = time.perf_counter()
    runner.run()
    return trained / (time.perf_counter() - began)


def rows(workload: Workload) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured."""
    found: dict[tuple[str, str, str], Callable[[], float]] = {
        ("fedavg", "constant", ""): partial(run, workload, fedavg, {}),
    }
    if workload is W1:
        late = {"sample": "uniform_available", "responsiveness": "UNI-50-150"}
        # FedBuff's first parameter is its buffer, as a fraction of all clients: K = 10.
        found["fedbuff", "uniform", ""] = partial(
            run, workload, fedbuff, {**late, "algo_para": [10 / workload.clients]}
        )
        found["fedasync", "uniform", ""] = partial(run, workload, fedasync, late)
    return found
