import shutil

import pytest
import torch

from offbeat.algorithms import FedBuff
from tests.service.conftest import LENGTH, PLAN, body_of, running

ONES = torch.ones(LENGTH)


def make():
    return FedBuff(buffer_size=2, concurrency=9)


def refused_steps(server):
    assert server.admin.http.get("/v1/status").json()["refused_steps"] == len(
        server.service.engine.coordinator.algorithm.refused_steps
    )
    metrics = server.admin.http.get("/metrics").text
    return int(float(metrics.split("\noffbeat_refused_steps ")[1].split()[0]))


def test_a_step_that_overflows_is_told_of_and_the_next_one_counts(tmp_path, caplog):
    with running(tmp_path / "server", make) as server:
        peers = [server.enrol() for _ in range(2)]
        tokens = [peer.http.headers["authorization"].split()[1] for peer in peers]
        assert refused_steps(server) == 0
        before = peers[0].http.get("/v1/models/0").content
        for peer in peers:
            assert peer.send(peer.check_in(), 3e38 * ONES)["counted"]
        visits = [peer.check_in() for peer in peers]
        assert [visit["version"] for visit in visits] == [1, 1]
        assert refused_steps(server) == 1
        assert before.endswith(bytes(4 * LENGTH))
        assert peers[0].http.get("/v1/models/1").content.endswith(bytes(4 * LENGTH))
        (told,) = [record for record in caplog.records if record.message == "step_refused"]
        assert told.fields == {
            "version": 0,
            "problem": "the sum of the updates is not finite, or too large for 32 bits",
        }
        shutil.copytree(server.folder, tmp_path / "killed")
    caplog.clear()
    with running(tmp_path / "killed", make) as server:
        assert refused_steps(server) == 1
        assert "step_refused" not in caplog.messages
        for token, visit in zip(tokens, visits, strict=True):
            assert server.peer(token).send(visit, ONES)["counted"]
        torch.testing.assert_close(server.service.engine.coordinator.algorithm.model, -ONES)
        assert refused_steps(server) == 1


@pytest.mark.parametrize("normaliser", [0.0, 0.2, 2.0, 20.0])
def test_a_normaliser_like_that_of_the_plan_is_accepted(normaliser, tmp_path):
    with running(tmp_path / "server", make) as server:
        peer = server.enrol()
        assert peer.send(peer.check_in(), ONES, normaliser=normaliser)["counted"]


@pytest.mark.parametrize(("steps", "normaliser"), [(2, 0.19), (2, 20.1), (2, 3e38), (1, 11.0), (0, 1.0)])
def test_a_normaliser_that_no_such_plan_has_is_refused(steps, normaliser, tmp_path):
    assert PLAN.steps == 2
    with running(tmp_path / "server", make) as server:
        peer = server.enrol()
        answer = peer.put(peer.check_in(), body_of(ONES), steps=steps, normaliser=normaliser)
        assert (answer.status_code, answer.json()["kind"]) == (422, "wrong-plan")
        assert "\n" not in answer.json()["detail"]
