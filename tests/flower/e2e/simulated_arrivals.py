"""Flower's simulation of the example's app, with the arrivals of a server's log.

``python simulated_arrivals.py CALLS MODEL``: CALLS is a JSON file of the coordinator's calls, in order, and MODEL the
file for the final model.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from digits_app.client_app import app as users_app
from digits_app.task import make_model
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator, RecordedCall
from offbeat.flower.grid_run import GridRun
from offbeat.flower.model_arrays import ModelArrays

CLIENTS = 3
PLAN = LocalPlan(steps=18, batch_size=10, lr=0.05)
SETTINGS: dict[str, Any] = {"batch-size": 10, "local-epochs": 1}

server_app = ServerApp()
client_app = ClientApp()


def make_algorithm() -> FedBuff:
    return FedBuff(buffer_size=2, concurrency=3)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    # The settings of pyproject.toml, which this way of starting a simulation leaves out.
    return users_app(message, dataclasses.replace(context, run_config=SETTINGS))


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    calls, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    model = ModelArrays(make_model())
    coordinator = Coordinator(make_algorithm(), model.vector, clients=CLIENTS, local=PLAN, seed=7)
    run = GridRun(grid, coordinator, model)
    while len(run._nodes.available) < CLIENTS:
        run.see_nodes()
    replies: dict[int, Message] = {}
    for name, arguments in calls:
        if name == "assign":
            coordinator.replay(RecordedCall(name, arguments))
            run.send([coordinator.visits.assignment(client) for client in arguments["clients"]])
        elif name == "receive":
            while arguments["client"] not in replies:
                # A reply that was pulled before is gone.
                missing = [number for number, sent in run._sent.items() if sent.assignment.client not in replies]
                for reply in grid.pull_messages(missing):
                    sent = run._sent[reply.metadata.reply_to_message_id]
                    replies[sent.assignment.client] = reply
                time.sleep(0.02)
            run.take_in(replies.pop(arguments["client"]))
    assert coordinator.statistics.counted == sum(name == "receive" for name, _ in calls)
    torch.save(coordinator.algorithm.model, result)


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}},
    )
