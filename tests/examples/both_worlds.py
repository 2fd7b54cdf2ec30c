"""An example's files in both worlds: a server with clients, and the simulator."""

import dataclasses
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tomli_w
import torch
from offbeat_client.http.retry import Backoff

from offbeat.config import server_file
from offbeat.config.import_path import canonical, load_object
from offbeat.model_inputs import map_inputs
from offbeat.service.client import run_client
from offbeat.simulation.totals import Stop
from offbeat.worlds.serve import build_coordinator
from offbeat.worlds.workload import as_tensor, build_dataset, build_model, load_loss
from tests.service.conftest import running
from tests.service.simulated import simulate
from tests.workloads import workload_of

CLIENTS, ROUNDS = 2, 3


def function(file, name):
    return load_object(canonical(f"{file}:{name}", Path()))


def small_server_file(example, path, monkeypatch, **arguments):
    """Write the example's server file for two clients, which the clients read, too."""
    table = tomllib.loads((example / "server.toml").read_text("utf-8"))
    table["data"] |= {"name": str(example / table["data"]["name"])}
    table["data"]["arguments"] |= {"users": CLIENTS, **arguments}
    table["model"]["name"] = str(example / table["model"]["name"])
    if ":" in table["model"]["loss"]:
        table["model"]["loss"] = str(example / table["model"]["loss"])
    table["service"]["clients"] = CLIENTS
    table["algorithm"] = {"algorithm": "fedavg", "cohort": CLIENTS, "weighting": "uniform"}
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    make = function(example / "client.py", "make_client")
    monkeypatch.setattr(sys.modules[make.__module__], "SERVER_FILE", path)
    return server_file.load(path), make


def assert_both_worlds_agree(file, make, folder):
    """Train in the service and in the simulator; return the clients, the start and the end."""
    coordinator, layout = build_coordinator(file)
    plan, start = file.local.plan(), coordinator.algorithm.model.clone()
    torch.manual_seed(99)  # clients have other random numbers than the server
    clients = [make(number) for number in range(CLIENTS)]
    settings = {"plan": plan, "model": start, "layout": layout, "stop_versions": ROUNDS}
    with running(folder / "server", file.build_algorithm, clients=CLIENTS, **settings) as server:

        def join(name):
            backoff = Backoff(first_seconds=0.001, largest_seconds=0.002, attempts=4)
            token = server.enrolment_token
            return run_client(server.url, clients.__getitem__, folder / name, enrolment_token=token, backoff=backoff)

        with ThreadPoolExecutor() as pool:
            assert list(pool.map(join, "ab")) == [ROUNDS] * CLIENTS
        served = server.service.engine.coordinator.algorithm.model
    dataset = build_dataset(file.data)
    model = build_model(file.model, dataset, file.service.seed)
    owned = [np.flatnonzero(dataset.users == client) for client in range(CLIENTS)]
    workload = workload_of(
        model,
        inputs=map_inputs(as_tensor, dataset.train_inputs),
        labels=as_tensor(dataset.train_labels),
        shards=[rows[np.arange(len(rows)) % 5 != 4] for rows in owned],  # the others are held out
        seed=7,
        loss=load_loss(file.model.loss),
    )
    algorithm, stop = file.build_algorithm(), Stop(versions=ROUNDS)
    simulate(algorithm, plan, [1.0] * CLIENTS, [], stop=stop, record=lambda _: None, workload=workload)
    assert torch.equal(served, algorithm.model)
    assert (served - start).norm() > 1e-2
    with_test = dataclasses.replace(
        workload,
        held_out=[rows[np.arange(len(rows)) % 5 == 4] for rows in owned],
        objective=dataclasses.replace(workload.objective, metrics=clients[0].metrics),
    )
    for number, client in enumerate(clients):
        metrics, _ = client.evaluate({name: part.clone() for name, part in model.named(served).items()})
        loss, others = with_test.measure_on_client(number, served)
        assert metrics == {"loss": loss, **others}
    return metrics
