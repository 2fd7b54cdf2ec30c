"""Updates per second of Flower: FedAvg on its simulation backend.

The backend is Ray, with two actors of one thread each. Construction, the start of Ray and the first round, in which
every actor makes the data, are left out. The client is written as in Flower's PyTorch quickstart; its local steps are
those of the plain loop.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import logging
import tempfile
import time
from collections.abc import Callable
from functools import partial

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workloads import WORKLOADS, Workload, train

PACKAGE = "flwr"
ACTORS = 2

client_app = ClientApp()


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train one client; this runs in an actor."""
    torch.set_num_threads(1)
    workload = WORKLOADS[message.content["config"]["workload"]]
    model = workload.make()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    inputs, labels = workload.client(context.node_config["partition-id"])
    train(workload, model, inputs, labels, torch.arange(len(labels)))
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(labels)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


def fedavg(workload: Workload) -> float:
    """Return updates a second of some rounds."""
    ends: list[float] = []
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        FedAvg(fraction_train=workload.cohort / workload.clients, fraction_evaluate=0.0).start(
            grid,
            ArrayRecord(workload.make().state_dict()),
            num_rounds=1 + workload.rounds,
            train_config=ConfigRecord({"workload": workload.name}),
            # Flower calls it before the first round and after each.
            evaluate_fn=lambda *_: ends.append(time.perf_counter()),
        )

    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run_simulation(
            server_app,
            client_app,
            num_supernodes=workload.clients,
            backend_config={
                "client_resources": {"num_cpus": 1},
                "init_args": {"num_cpus": ACTORS, "_temp_dir": folder},
            },
        )
    return workload.rounds * workload.cohort / (ends[-1] - ends[1])


def rows(workload: Workload) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured."""
    return {("fedavg", "-", f", {ACTORS} actors"): partial(fedavg, workload)}
