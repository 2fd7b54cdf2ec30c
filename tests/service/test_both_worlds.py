"""The same arrivals in the simulator and over HTTP make the same models, bit for bit."""

import hashlib
import json
import math
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedLuck, LocalPlan
from offbeat.compression import COMPRESSORS
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always
from offbeat.population.devices.devices import Devices
from offbeat.population.devices.links import ConstantLink
from offbeat.simulation.records import Stop
from offbeat.simulation.simulator import Simulation
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.loop import LoopTrainer
from tests.algorithms.case import all_cases
from tests.service.conftest import body_of, running

CLIENTS = 6
LEASE_SECONDS = 20.3  # never at a tick
ALGORITHMS = {name: case.make for name, case in all_cases(CLIENTS).items()} | {
    "fedluck compressing": lambda: FedLuck(period=6.0, steps=(1, 4), compression=(0.2, 1.0)),
}


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def simulated(algorithm):
    """Return the calls of a simulation in which clients train, are late and get lost, and the model it ends with."""
    random = np.random.default_rng(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = FlatModel(nn.Linear(4, 3))
    initial = model.vector.clone()
    shards = np.split(random.permutation(60), CLIENTS)
    trainer = LoopTrainer(
        model,
        loss=cross_entropy,
        inputs=torch.from_numpy(random.normal(size=(60, 4)).astype(np.float32)),
        labels=torch.from_numpy(random.integers(3, size=60)),
        shards=shards,
        seed=7,
    )
    calls = []

    def record(call):
        # Now, since the simulation forgets the work of an update that does not count.
        if call.name == "receive":
            call.arguments["vector"] = call.arguments["vector"].resolve()
        calls.append(call)

    plan = LocalPlan(steps=4, batch_size=5, lr=0.3)
    coordinator = Coordinator(
        algorithm, initial, clients=CLIENTS, local=plan, seed=7, lease_seconds=LEASE_SECONDS, record=record
    )
    devices = Devices(
        step_seconds=np.array([0.5, 0.71, 1.3, 2.9, 6.3, 3.37]),
        down=ConstantLink(np.full(CLIENTS, 100.0)),
        up=ConstantLink(np.full(CLIENTS, 50.0)),
        # Port makes its versions when it hears that somebody gave up, which a simulated client does not say.
        loss_probability=np.array([0.0, 0.3, 0.0, 0.3, 0.0, 0.0]) * (algorithm.name != "port"),
        availability=Always(),
        when_away="pause",
    )
    simulation = Simulation(
        coordinator,
        devices,
        trainer,
        evaluate=lambda _: (0.0, {}),
        evaluate_every_seconds=math.inf,
        stop=Stop(virtual_seconds=150.0),
        seed=7,
    )
    for _ in simulation.run():
        pass
    return calls, plan, initial, simulation


def over_http(calls, algorithm, plan, initial, folder):
    """Make the same calls by requests; return the server's last version and model."""
    clock = Clock()
    with running(
        folder,
        algorithm,
        clients=CLIENTS,
        plan=plan,
        model=initial,
        layout=[("weight", (3, 4)), ("bias", (3,))],
        lease_seconds=LEASE_SECONDS,
        clock=clock,
        checkpoint_seconds=math.inf,
    ) as server:
        engine = server.service.engine
        peers = [server.enrol() for _ in range(CLIENTS)]
        visits = {}
        for call in calls:
            what = call.arguments
            if call.name in ("lapse", "tick"):
                # The server hears of it by its clock alone.
                number = engine.journal.number
                clock.now = max(clock.now, what["now"])
                wait_for(lambda number=number: engine.journal.number > number)
                continue
            clock.now = max(clock.now, math.nextafter(what["now"], 0.0))
            if call.name == "note_speed":
                speed = {name: what[name] for name in ("step_seconds", "upload_seconds")}
                peers[what["client"]].http.post("/v1/probe", json=speed).raise_for_status()
            elif call.name == "assign":
                for client in what["clients"]:
                    if engine.coordinator.visits.has_slot(client):
                        # Its work was lost. A simulated client just comes back; a real one would go on, or says so.
                        peers[client].http.post(f"/v1/visits/{visits[client]['number']}/give-up").raise_for_status()
                    visits[client] = peers[client].check_in()
                    assert visits[client] is not None
            elif call.name == "offer":
                assert not peers[what["client"]].http.get(f"/v1/uploads/{what['visit']}").json()["wanted"]
            elif call.name == "receive":
                visit = visits[what["client"]]
                assert visit["number"] == what["visit"]
                body = encoded(what["vector"], visit["plan"])
                names = ("examples", "steps", "normaliser", "since", "step_seconds", "upload_seconds")
                head = {
                    "version": visit["version"],
                    "bytes": len(body),
                    "sha256": hashlib.sha256(body).hexdigest(),
                    **{name: what[name] for name in names},
                }
                answer = peers[what["client"]].http.put(
                    f"/v1/uploads/{what['visit']}", content=body, headers={"Offbeat-Update": json.dumps(head)}
                )
                assert answer.status_code == 200, answer.text
        server.checkpoint()  # which publishes the newest version, also one that no client was given
        latest = peers[0].http.get("/v1/models/latest", follow_redirects=True)
        tensors = load_tensors(latest.content)
        version = server.admin.http.get("/v1/status").json()["version"]
        assert latest.url.path == f"/v1/models/{version}"
    return version, torch.cat([tensors["weight"].view(-1), tensors["bias"]])


def encoded(vector, plan):
    compression = plan["compression"]
    if compression is None:
        return body_of(vector)
    return COMPRESSORS[compression["name"]](**compression["parameters"]).encode(vector, 0).to_bytes()


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_both_worlds_come_to_the_same_model(name, tmp_path):
    calls, plan, initial, simulation = simulated(ALGORITHMS[name]())
    version, model = over_http(calls, ALGORITHMS[name], plan, initial, tmp_path / "server")
    assert version == simulation.coordinator.algorithm.version > 4
    assert torch.equal(model, simulation.coordinator.algorithm.model)
