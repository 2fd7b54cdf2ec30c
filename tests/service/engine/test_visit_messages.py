"""Probes: how fast a client is, reported before its first visit, which is planned by it."""

import pytest
import torch
from offbeat_core.messages import LARGEST_PROBE

from offbeat.algorithms import FedLuck, LocalPlan
from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.service.store.backup import back_up
from tests.service.conftest import LENGTH, running
from tests.service.http_client import kind_of

PLAN = LocalPlan(steps=9, batch_size=3, lr=0.5, momentum=0.5)
SPEED = {"step_seconds": 0.01, "upload_seconds": 60.0}
NOTHING = {"probe": None, "upload_bytes": 0}


def is_measured(visit, speed=SPEED):
    steps, share = best_steps_and_compression(speed["step_seconds"], speed["upload_seconds"], 2.0)
    plan = visit["plan"]
    return (plan["steps"], plan["compression"]) == (steps, {"name": "top_k", "parameters": {"share": share}})


def quick(folder, **settings):
    return running(folder, lambda: FedLuck(period=2.0), plan=PLAN, **settings)


def token_of(peer):
    return peer.http.headers["authorization"].removeprefix("Bearer ")


def test_the_first_visit_is_planned_by_what_the_client_reported(tmp_path):
    with quick(tmp_path / "server") as server:
        peer, other = server.enrol(), server.enrol()
        before = server.service.engine.log_writer.number
        wanted = peer.http.get("/v1/probe").json()
        assert wanted["upload_bytes"] == 4 * LENGTH
        probe = wanted["probe"]
        assert (probe["version"], probe["payload"], probe["length"], probe["seed"]) == (0, "delta", LENGTH, 7)
        expected = {"steps": 1, "batch_size": 3, "lr": 0.5, "momentum": 0.5, "compression": None}
        assert {key: probe["plan"][key] for key in expected} == expected
        answer = peer.http.put("/v1/probe", content=bytes(24))
        assert (answer.status_code, answer.json()) == (200, {"bytes": 24})
        assert server.service.engine.log_writer.number == before  # nothing has happened so far
        answer = peer.http.post("/v1/probe", json=SPEED)
        assert (answer.status_code, answer.json()) == (200, SPEED)
        assert is_measured(peer.check_in())
        assert peer.http.get("/v1/probe").json() == NOTHING
        assert other.check_in()["plan"]["steps"] == PLAN.steps  # one that cannot tell


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_reported_speed_is_durable(checkpoint, tmp_path):
    with quick(tmp_path / "server") as server:
        peers = [server.enrol() for _ in range(2)]
        for peer in peers:
            assert peer.http.post("/v1/probe", json={"step_seconds": 5, "upload_seconds": 0.25}).status_code == 200
            assert peer.http.post("/v1/probe", json=SPEED).status_code == 200
        first = peers[0].check_in()
        if checkpoint:
            server.checkpoint()
        # As a kill leaves it: without the checkpoint that the server makes when it ends.
        back_up(tmp_path / "server", tmp_path / "copy")
        state = server.service.engine.coordinator.algorithm.state_dict()
    with quick(tmp_path / "copy") as server:
        again = server.service.engine.coordinator.algorithm.state_dict()
        assert {key: str(value) for key, value in again.items()} == {key: str(value) for key, value in state.items()}
        one, two = (server.peer(token_of(peer)) for peer in peers)
        assert one.check_in() == first
        assert is_measured(first)
        assert is_measured(two.check_in())


def test_after_the_first_visit_a_speed_changes_nothing(tmp_path):
    with quick(tmp_path / "server") as server:
        peer = server.enrol()
        peer.check_in()
        before, number = server.service.engine.coordinator.state_dict(), server.service.engine.log_writer.number
        assert peer.http.post("/v1/probe", json=SPEED).status_code == 200
        after = server.service.engine.coordinator.state_dict()
        assert {key: str(value) for key, value in after.items()} == {key: str(value) for key, value in before.items()}
        assert server.service.engine.log_writer.number == number


def test_an_algorithm_that_does_not_plan_by_speed_asks_for_nothing(server):
    peer = server.enrol()
    before = server.service.engine.log_writer.number
    assert peer.http.get("/v1/probe").json() == NOTHING
    assert peer.http.post("/v1/probe", json=SPEED).status_code == 200
    assert server.service.engine.log_writer.number == before


def test_the_upload_of_a_large_model_is_sampled(tmp_path):
    length = LARGEST_PROBE // 4 + 1
    with quick(tmp_path / "server", model=torch.zeros(length), layout=[("weight", (length,))]) as server:
        peer = server.enrol()
        assert peer.http.get("/v1/probe").json()["upload_bytes"] == LARGEST_PROBE
        assert peer.http.put("/v1/probe", content=bytes(LARGEST_PROBE)).json() == {"bytes": LARGEST_PROBE}


def test_a_body_that_is_too_large_or_of_no_length_is_refused(tmp_path):
    with quick(tmp_path / "server") as server:
        peer = server.enrol()
        assert kind_of(peer.http.put("/v1/probe", content=bytes(LARGEST_PROBE + 1)), 413) == "too-large"
        assert kind_of(peer.http.put("/v1/probe", content=iter([b"x"])), 411) == "length-required"
        assert list((tmp_path / "server" / "partial").iterdir()) == []


def test_a_malformed_speed_is_refused_and_one_however_odd_makes_a_plan(tmp_path):
    with quick(tmp_path / "server") as server:
        peers = [server.enrol() for _ in range(2)]
        before = server.service.engine.log_writer.number
        for seconds in ("-1", "NaN", "Infinity", "1e39", '"1"', "true", "null"):
            body = f'{{"step_seconds": 1, "upload_seconds": {seconds}}}'
            answer = peers[0].http.post("/v1/probe", content=body, headers={"Content-Type": "application/json"})
            assert kind_of(answer, 400) == "malformed-request"
        assert server.service.engine.log_writer.number == before
        for peer, seconds in zip(peers, (0.0, 3e38), strict=True):
            speed = {"step_seconds": seconds, "upload_seconds": seconds}
            assert peer.http.post("/v1/probe", json=speed).status_code == 200
            plan = peer.check_in()["plan"]
            assert 1 <= plan["steps"] <= 50
            assert plan["compression"] is None or 0.01 <= plan["compression"]["parameters"]["share"] <= 1
