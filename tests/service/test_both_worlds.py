"""The same arrivals in the simulator and over HTTP make the same models, bit for bit."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors

from offbeat.algorithms import FedLuck, LocalPlan
from offbeat.compression import COMPRESSORS
from offbeat.simulation.totals import Stop
from tests.algorithms.case import all_cases, by_parts, first_of_each
from tests.page_code import page_code
from tests.service.conftest import body_of, running
from tests.service.http_client import until
from tests.service.simulated import LAYOUT, initial_model, simulate

CLIENTS = 6
LEASE_SECONDS = 20.3  # never at a tick
PLAN = LocalPlan(steps=4, batch_size=5, lr=0.3)
STEP_SECONDS = [0.5, 0.71, 1.3, 2.9, 6.3, 3.37]
LOSS_PROBABILITY = np.array([0.0, 0.3, 0.0, 0.3, 0.0, 0.0])
# One of each kind of schedule and buffer, and all in long tests.
ALGORITHMS = {name: case.make for name, case in first_of_each(by_parts, CLIENTS).items()} | {
    "fedfa params": all_cases()["fedfa params"].make,  # whose clients send parameters
    "fedluck compressing": lambda: FedLuck(period=6.0, steps=(1, 4), compression=(0.2, 1.0)),
    "own selection": lambda: page_code("how-to/own-selection.md", "oort.py").OortFedAvg(cohort=3),
}


def simulated(algorithm):
    """Return the calls of a simulation in which clients train, are late and get lost, and the algorithm at its end."""
    calls = []

    def record(call):
        # Now, since the simulation forgets the work of an update that does not count.
        if call.name == "receive":
            call.arguments["vector"] = call.arguments["vector"].resolve()
        calls.append(call)

    simulate(
        algorithm,
        PLAN,
        STEP_SECONDS,
        np.split(np.random.default_rng(2).permutation(60), CLIENTS),
        stop=Stop(virtual_seconds=80.0 if algorithm.period is None else 30.0),
        record=record,
        loss_probability=LOSS_PROBABILITY,
        lease_seconds=LEASE_SECONDS,
    )
    return calls, algorithm


def over_http(calls, make, folder):
    """Make the same calls by requests; return the server's last version and model."""
    now, visits = 0.0, {}
    settings = {"lease_seconds": LEASE_SECONDS, "clock": lambda: now, "checkpoint_seconds": math.inf}
    with running(folder, make, clients=CLIENTS, plan=PLAN, model=initial_model(), layout=LAYOUT, **settings) as server:
        engine = server.service.engine
        peers = [server.enrol() for _ in range(CLIENTS)]
        for call in calls:
            what = call.arguments
            if call.name in ("lapse", "tick"):
                # The server hears of it by its clock alone.
                number = engine.log_writer.number
                now = max(now, what["now"])
                server.loop.call_soon_threadsafe(engine.run.alarm.ring)  # the timer sleeps by its own clock
                until(lambda number=number: engine.log_writer.number > number)
                continue
            now = max(now, math.nextafter(what["now"], 0.0))
            if call.name == "note_speed":
                speed = {name: what[name] for name in ("step_seconds", "upload_seconds")}
                peers[what["client"]].http.post("/v1/probe", json=speed).raise_for_status()
            elif call.name == "assign":
                for client in what["clients"]:
                    visits[client] = peers[client].check_in()
                    assert visits[client] is not None
            elif call.name == "drop":
                assert visits[what["client"]]["number"] == what["visit"]
                peers[what["client"]].http.post(f"/v1/visits/{what['visit']}/give-up").raise_for_status()
            elif call.name == "offer":
                assert not peers[what["client"]].http.get(f"/v1/uploads/{what['visit']}").json()["wanted"]
            elif call.name == "receive":
                visit = visits[what["client"]]
                assert visit["number"] == what["visit"]
                names = ("examples", "steps", "normaliser", "since", "step_seconds", "upload_seconds", "loss")
                changes = {name: what[name] for name in names}
                answer = peers[what["client"]].put(visit, encoded(what["vector"], visit["plan"]), **changes)
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


@pytest.mark.parametrize("name", ALGORITHMS)
def test_both_worlds_come_to_the_same_model(name, tmp_path):
    calls, algorithm = simulated(ALGORITHMS[name]())
    version, model = over_http(calls, ALGORITHMS[name], tmp_path / "server")
    assert version == algorithm.version > 2
    assert torch.equal(model, algorithm.model)
