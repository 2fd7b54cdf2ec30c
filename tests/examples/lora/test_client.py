"""The example in both worlds: a server with clients, and the simulator."""

import json
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tomli_w
import torch
from offbeat_client.http.retry import Backoff
from offbeat_core.errors import OffbeatError
from safetensors.torch import load as load_tensors

from offbeat.config import experiment_file, server_file
from offbeat.service.client import run_client
from offbeat.simulation.totals import Stop
from offbeat.training.workload import as_tensor
from offbeat.worlds.serve import build_coordinator
from offbeat.worlds.workload import build_dataset, build_model
from tests.examples.lora.conftest import EXAMPLE, function
from tests.service.conftest import running
from tests.service.simulated import simulate
from tests.workloads import workload_of

CLIENTS, ROUNDS = 2, 3


@pytest.fixture
def server_toml(base, sentences, tmp_path, monkeypatch):
    """Write the example's file for a small model and two clients, which the client reads, too."""

    def write(**arguments):
        table = tomllib.loads((EXAMPLE / "server.toml").read_text("utf-8"))
        for section in (table["data"], table["model"]):
            section["name"] = str(EXAMPLE / section["name"])
            section["arguments"] |= base
        table["data"]["arguments"] |= {"users": CLIENTS, "test_examples": 3}
        table["model"]["arguments"] |= arguments
        table["service"]["clients"] = CLIENTS
        table["algorithm"] = {"algorithm": "fedavg", "cohort": CLIENTS, "weighting": "uniform"}
        path = tmp_path / "server.toml"
        path.write_text(tomli_w.dumps(table), encoding="utf-8")
        monkeypatch.setattr(sys.modules[function("client.py", "make_client").__module__], "SERVER_FILE", path)
        return path

    return write


@pytest.mark.parametrize("freeze_a", [False, True])
def test_both_worlds_come_to_the_same_adapters(server_toml, freeze_a, tmp_path):
    file = server_file.load(server_toml(freeze_a=freeze_a))
    coordinator, layout = build_coordinator(file)
    plan, start = file.local.plan(), coordinator.algorithm.model.clone()
    torch.manual_seed(99)  # clients have other random numbers than the server
    clients = [function("client.py", "make_client")(number) for number in range(CLIENTS)]
    settings = {"plan": plan, "model": start, "layout": layout, "stop_versions": ROUNDS}
    with running(tmp_path / "server", file.build_algorithm, clients=CLIENTS, **settings) as server:

        def join(name):
            backoff = Backoff(first_seconds=0.001, largest_seconds=0.002, attempts=4)
            folder = tmp_path / name
            return run_client(
                server.url, clients.__getitem__, folder, enrolment_token=server.enrolment_token, backoff=backoff
            )

        with ThreadPoolExecutor() as pool:
            assert list(pool.map(join, "ab")) == [ROUNDS] * CLIENTS
        served = server.service.engine.coordinator.algorithm.model
        client = server.peer(json.loads((tmp_path / "a" / "identity.json").read_text("utf-8"))["token"])
        download = client.http.get("/v1/models/latest", follow_redirects=True).content
    tensors = load_tensors(download)
    # Only these travel, and little besides their numbers.
    kinds = {"lora_B", "head"} if freeze_a else {"lora_A", "lora_B", "head"}
    assert {kind for name in tensors for kind in ("lora_A", "lora_B", "head") if kind in name} == kinds
    assert len(tensors) == (4 if freeze_a else 8) + 2
    assert 0 < len(download) - start.nbytes < 300 * len(tensors)

    dataset = build_dataset(file.data)
    workload = workload_of(
        build_model(file.model, dataset, file.service.seed),
        inputs=as_tensor(dataset.train_inputs),
        labels=as_tensor(dataset.train_labels),
        shards=[np.flatnonzero(dataset.users == client) for client in range(CLIENTS)],
        seed=7,
    )
    algorithm = file.build_algorithm()
    simulate(algorithm, plan, [1.0] * CLIENTS, [], stop=Stop(versions=ROUNDS), record=lambda _: None, workload=workload)
    assert torch.equal(served, algorithm.model)
    assert (served - start).norm() > 1e-3


def test_a_client_with_other_weights_is_told(server_toml):
    server_toml(sha256="0" * 64)
    with pytest.raises(OffbeatError, match="is not the base model of this run"):
        function("client.py", "make_client")(0)


def test_the_experiment_file_is_right():
    experiment = experiment_file.load(EXAMPLE / "lora.toml")
    assert experiment.plan("fedbuff").optimizer == "adamw"
    assert experiment.population.clients <= experiment.data.arguments["users"]
