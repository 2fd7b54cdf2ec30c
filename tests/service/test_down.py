"""SCAFFOLD's c travels in the file of its version, is durable and counted in bytes, and never changes."""

import shutil

import pytest
import torch
from safetensors.torch import load

from offbeat.algorithms import SCAFFOLD
from tests.service.conftest import LENGTH, PLAN, body_of, running
from tests.service.http_client import kind_of

DELTA = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.0, 8.0])


def scaffold():
    return SCAFFOLD(cohort=1, server_lr=1.0)


@pytest.fixture
def server(tmp_path):
    with running(tmp_path / "server", scaffold, clients=2, checkpoint_seconds=1e6) as served:
        yield served


def take_part(peer, delta):
    assert peer.send(peer.check_in(), delta)["counted"]


def downloaded(peer, version):
    answer = peer.http.get(f"/v1/models/{version}")
    assert answer.status_code == 200
    return answer


def test_c_comes_with_the_version_that_it_belongs_to(server):
    peer, other = server.enrol(), server.enrol()
    take_part(peer, DELTA)
    assert other.check_in()["version"] == 1
    first, second = (downloaded(peer, version) for version in (0, 1))
    tensors = load(first.content)
    assert tensors[".down"].tolist() == [0] * LENGTH
    assert sorted(tensors) == [".down", "bias", "weight"]
    # c = (1/N) Δ / P, and P = 2 steps · ½.
    assert torch.equal(load(second.content)[".down"], DELTA / 2)
    assert torch.equal(load(second.content)["weight"].view(-1), -DELTA[:4])
    assert first.headers["etag"] != second.headers["etag"]
    # Both files are counted whole: two vectors of six numbers, and the header.
    samples = server.service.metrics.download_bytes.collect()[0].samples
    (total,) = (sample.value for sample in samples if sample.name.endswith("_total"))
    assert total == len(first.content) + len(second.content) > 2 * 2 * 4 * LENGTH


def test_a_killed_server_makes_the_same_bytes_again(server, tmp_path):
    peer, other = server.enrol(), server.enrol()
    for delta in (DELTA, 3 * DELTA):
        take_part(peer, delta)
    visit = other.check_in()
    before = downloaded(peer, visit["version"])
    shutil.copytree(server.folder, tmp_path / "killed")
    for path in (tmp_path / "killed" / "models").iterdir():
        path.unlink()
    with running(tmp_path / "killed", scaffold, clients=2, checkpoint_seconds=1e6) as restarted:
        after = downloaded(restarted.peer(peer.token), visit["version"])
    assert after.content == before.content
    assert after.headers["etag"] == before.headers["etag"]
    assert load(after.content)[".down"].any()


@pytest.mark.parametrize("since", [None, 7])
def test_an_update_of_a_lost_c_i_or_of_fewer_steps_is_refused(since, server):
    peer, other = server.enrol(), server.enrol()
    visit = peer.check_in()
    assert kind_of(peer.put(visit, body_of(DELTA), steps=PLAN.steps - 1), 422) == "malformed-update"
    assert peer.send(visit, DELTA)["counted"]
    visit = peer.check_in()
    assert visit["since"] == 0
    answer = peer.put(visit, body_of(DELTA), since=since)
    assert kind_of(answer, 422) == "lost-memory"
    assert "lost its control variate" in answer.json()["detail"]
    assert torch.equal(server.service.engine.coordinator.algorithm.down(), DELTA / 2)
    assert other.check_in() is not None  # the slot is free
