"""Local plans of all kinds: the simulator and real clients of a server come to the same model."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from offbeat_client.http.connection import Backoff
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Epochs
from offbeat_core.lr_decay import exponential
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedAvg, FedNova, LocalPlan
from offbeat.client import LocalSGD, run_client
from offbeat.config.local_section import StepsFunction
from offbeat.simulation.totals import Stop
from tests.service.conftest import body_of, running
from tests.service.simulated import INPUTS, LABELS, LAYOUT, initial_model, module, simulate

CLIENTS, ROUNDS = 2, 4
# The weights are powers of two, so the order of a sum does not matter. Minibatches of 5 do not divide them.
SHARDS = [np.arange(16), np.arange(16, 48)]
EPOCHS = LocalPlan(steps=1, batch_size=5, lr=0.1, momentum=0.5, steps_by=Epochs(1.5))  # 6 of 4 + 2, and 11 of 7 + 4
FUNCTION = LocalPlan(steps=1, batch_size=5, lr=0.1, steps_by=StepsFunction(lambda examples: examples // 8, "mine"))
ADAMW = LocalPlan(steps=3, batch_size=4, lr=0.1, weight_decay=0.05, optimizer="adamw", lr_decay=exponential(0.6))
BACKOFF = Backoff(first_seconds=0.001, largest_seconds=0.002, attempts=4)


def client(number):
    return LocalSGD(module(), cross_entropy, (INPUTS[SHARDS[number]], LABELS[SHARDS[number]]))


def join(server, folder, make=client, visits=None):
    token = server.enrolment_token
    return run_client(server.url, make, folder, enrolment_token=token, backoff=BACKOFF, visits=visits)


def serve(folder, plan, make=FedAvg, **more):
    model = {"model": initial_model(), "layout": LAYOUT}
    return running(folder, lambda: make(cohort=CLIENTS), clients=CLIENTS, plan=plan, **model, **more)


def simulated(plan, make=FedAvg):
    algorithm = make(cohort=CLIENTS)
    plans = []
    examples = [len(shard) for shard in SHARDS]
    stop = Stop(versions=ROUNDS)
    simulate(algorithm, plan, [1.0] * CLIENTS, SHARDS, stop=stop, record=plans.append, examples=examples)
    reports = {call.arguments["client"]: call.arguments for call in plans if call.name == "receive"}
    return algorithm.model, [(reports[number]["steps"], reports[number]["normaliser"]) for number in range(CLIENTS)]


@pytest.mark.parametrize("make", [FedAvg, FedNova])
@pytest.mark.parametrize(("plan", "steps"), [(EPOCHS, (6, 11)), (FUNCTION, (2, 4))], ids=["epochs", "function"])
def test_both_worlds_come_to_the_same_model(plan, steps, make, tmp_path):
    """After a restart in the middle, too."""
    with serve(tmp_path / "server", plan, make, stop_versions=ROUNDS) as server, ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda name: join(server, tmp_path / name, visits=2), "ab")) == [2] * CLIENTS
    port = int(server.url.rpartition(":")[2])
    with serve(tmp_path / "server", plan, make, stop_versions=ROUNDS, port=port) as server:
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(lambda name: join(server, tmp_path / name), "ab")) == [ROUNDS - 2] * CLIENTS
        served = server.service.engine.coordinator.algorithm.model
    model, reports = simulated(plan, make)
    assert tuple(number for number, _ in reports) == steps
    if plan is EPOCHS:  # (Q − ρ(1 − ρ^Q)/(1 − ρ))/(1 − ρ) with ρ = ½: 2Q − 2 + 2^(1 − Q)
        assert [a for _, a in reports] == pytest.approx([2 * q - 2 + 2.0 ** (1 - q) for q in steps])
    torch.testing.assert_close(served, model, rtol=0, atol=0 if make is FedAvg else 1e-6)
    assert not torch.allclose(model, simulated(plan, FedNova if make is FedAvg else FedAvg)[0], atol=1e-3)


def test_adamw_with_a_step_size_that_decays_comes_to_the_same_model(tmp_path):
    with serve(tmp_path / "server", ADAMW, stop_versions=ROUNDS) as server, ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda name: join(server, tmp_path / name), "ab")) == [ROUNDS] * CLIENTS
        served = server.service.engine.coordinator.algorithm.model
    assert torch.equal(served, simulated(ADAMW)[0])
    for other in (replace(ADAMW, optimizer="sgd"), replace(ADAMW, lr_decay=None)):
        assert not torch.allclose(served, simulated(other)[0], atol=1e-3)


def test_a_client_that_does_not_declare_its_examples_is_refused(tmp_path):
    with (
        serve(tmp_path / "server", EPOCHS) as server,
        pytest.raises(OffbeatError, match=r"plans a client's steps by its examples: .*attribute `examples`"),
    ):
        join(server, tmp_path / "a", lambda _: lambda model, _: (model, 3), visits=1)


def test_a_client_cannot_take_more_steps_or_hold_other_examples_than_it_declared(tmp_path):
    with serve(tmp_path / "server", EPOCHS) as server:
        peer = server.enrol(examples=16)
        server.enrol(examples=32).check_in()
        visit = peer.check_in()
        assert (visit["plan"]["steps"], visit["plan"]["by_epochs"]) == (6, True)
        body = body_of(torch.zeros(15))
        for changes, kind in (({"steps": 7}, "wrong-plan"), ({"examples": 32}, "wrong-examples")):
            answer = peer.put(visit, body, **{"examples": 16, "steps": 6, "normaliser": 6.0} | changes)
            assert (answer.status_code, answer.json()["kind"]) == (422, kind)


@pytest.mark.parametrize("examples", [7, 2**31 - 1])
def test_a_client_without_a_number_of_steps_is_refused_in_one_line(examples, tmp_path):
    """The function returns 0 for the one, and too many for the other; the server goes on."""
    with serve(tmp_path / "server", FUNCTION) as server:
        peer = server.enrol(examples=examples)
        answer = peer.http.post("/v1/checkin", json={})
        assert (answer.status_code, answer.json()["kind"]) == (422, "wrong-examples")
        assert answer.json()["detail"] == (
            f"this run has no number of steps for {examples} examples: tell its operator"
        )
        assert server.enrol(examples=16).check_in()["plan"]["steps"] == 2
