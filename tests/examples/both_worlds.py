"""An example's files in both worlds: a server with clients, and the simulator."""

import dataclasses
import json
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tomli_w
import torch
from offbeat_client.http.connection import Backoff
from torch import Tensor

from offbeat.client import LocalSGD, run_client
from offbeat.config import server_file
from offbeat.config.import_path import canonical, load_object
from offbeat.model_inputs import map_inputs
from offbeat.simulation.totals import Stop
from offbeat.worlds.serve import build_coordinator
from offbeat.worlds.workload import as_tensor, build_dataset, build_model, load_loss
from tests.service.conftest import running
from tests.service.simulated import simulate
from tests.workloads import workload_of

CLIENTS, ROUNDS = 2, 3


def function(file, name):
    return load_object(canonical(f"{file}:{name}", Path()))


def small_server_file(example, path, monkeypatch, data, model=None):
    """Write the example's server file for two clients, which the clients read, too, with other arguments."""
    table = tomllib.loads((example / "server.toml").read_text("utf-8"))
    table["data"] |= {"name": str(example / table["data"]["name"])}
    table["data"]["arguments"] |= {"users": CLIENTS, **data}
    table["model"]["name"] = str(example / table["model"]["name"])
    table["model"]["arguments"] = table["model"].get("arguments", {}) | (model or {})
    if ":" in table["model"].get("loss", ""):
        table["model"]["loss"] = str(example / table["model"]["loss"])
    table["service"]["clients"] = CLIENTS
    table["algorithm"] = {"algorithm": "fedavg", "cohort": CLIENTS, "weighting": "uniform"}
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    make = function(example / "client.py", "make_client")
    monkeypatch.setattr(sys.modules[make.__module__], "SERVER_FILE", path)
    return server_file.load(path), make


class Served(NamedTuple):
    """A run in the service: its clients, the model at the start and the end, and its download."""

    clients: list[LocalSGD]
    start: Tensor
    end: Tensor
    download: bytes


def assert_both_worlds_agree(file, make, folder, *, held_out=True):
    """Train in the service and in the simulator; clients may keep every fifth example to evaluate."""
    served = serve(file, make, folder)
    dataset = build_dataset(file.data)
    owned = [np.flatnonzero(dataset.users == client) for client in range(CLIENTS)]
    is_kept = [np.arange(len(rows)) % 5 == 4 if held_out else np.zeros(len(rows), bool) for rows in owned]
    workload = workload_of(
        build_model(file.model, dataset, file.service.seed),
        inputs=map_inputs(as_tensor, dataset.train_inputs),
        labels=as_tensor(dataset.train_labels),
        shards=[rows[~kept] for rows, kept in zip(owned, is_kept, strict=True)],
        seed=7,
        loss=load_loss(file.model.loss),
    )
    algorithm, stop, plan = file.build_algorithm(), Stop(versions=ROUNDS), file.local.plan()
    simulate(algorithm, plan, [1.0] * CLIENTS, [], stop=stop, record=lambda _: None, workload=workload)
    assert torch.equal(served.end, algorithm.model)
    assert (served.end - served.start).norm() > 1e-3
    if held_out:
        objective = dataclasses.replace(workload.objective, metrics=served.clients[0].metrics)
        kept = [rows[kept] for rows, kept in zip(owned, is_kept, strict=True)]
        workload = dataclasses.replace(workload, held_out=kept, objective=objective)
        for number, client in enumerate(served.clients):
            parts = workload.model.named(served.end).items()
            metrics, _ = client.evaluate({name: part.clone() for name, part in parts})
            loss, others = workload.measure_on_client(number, served.end)
            assert metrics == {"loss": loss, **others}
    return served


def serve(file, make, folder):
    """Train in the service."""
    coordinator, layout = build_coordinator(file)
    start = coordinator.algorithm.model.clone()
    torch.manual_seed(99)  # clients have other random numbers than the server
    clients = [make(number) for number in range(CLIENTS)]
    settings = {"plan": file.local.plan(), "model": start, "layout": layout, "stop_versions": ROUNDS}
    with running(folder / "server", file.build_algorithm, clients=CLIENTS, **settings) as server:

        def join(name):
            backoff = Backoff(first_seconds=0.001, largest_seconds=0.002, attempts=4)
            token = server.enrolment_token
            return run_client(server.url, clients.__getitem__, folder / name, enrolment_token=token, backoff=backoff)

        with ThreadPoolExecutor() as pool:
            assert list(pool.map(join, "ab")) == [ROUNDS] * CLIENTS
        end = server.service.engine.coordinator.algorithm.model
        peer = server.peer(json.loads((folder / "a" / "identity.json").read_text("utf-8"))["token"])
        download = peer.http.get("/v1/models/latest", follow_redirects=True).content
    return Served(clients, start, end, download)
