"""SCAFFOLD's c travels in the file of its version, is durable and counted in bytes, and never changes."""

import shutil

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load, load_file

from offbeat.algorithms import SCAFFOLD
from offbeat.cli import service as cli_service
from offbeat.service.store.model_files import ModelFiles
from tests.service.conftest import LAYOUT, LENGTH, PLAN, body_of, running
from tests.service.http_client import kind_of

DELTA = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.0, 8.0])


def scaffold():
    return SCAFFOLD(cohort=1, server_lr=1.0)


def take_part(server, peer, delta):
    visit = peer.check_in()
    assert peer.send(visit, delta)["counted"]
    return visit


def downloaded(peer, version):
    answer = peer.http.get(f"/v1/models/{version}")
    assert answer.status_code == 200
    return answer


def test_c_comes_with_the_version_that_it_belongs_to(tmp_path):
    with running(tmp_path / "server", scaffold, clients=2) as server:
        peer, other = server.enrol(), server.enrol()
        take_part(server, peer, DELTA)
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


def test_a_killed_server_makes_the_same_bytes_again(tmp_path):
    with running(tmp_path / "server", scaffold, clients=2, checkpoint_seconds=1e6) as server:
        peer, other = server.enrol(), server.enrol()
        for delta in (DELTA, 3 * DELTA):
            take_part(server, peer, delta)
        visit = other.check_in()
        before = downloaded(peer, visit["version"])
        token = peer.http.headers["Authorization"]
        shutil.copytree(server.folder, tmp_path / "killed")
    for path in (tmp_path / "killed" / "models").iterdir():
        path.unlink()
    with running(tmp_path / "killed", scaffold, clients=2, checkpoint_seconds=1e6) as server:
        peer = server.peer(token.removeprefix("Bearer "))
        after = downloaded(peer, visit["version"])
    assert after.content == before.content
    assert after.headers["etag"] == before.headers["etag"]
    assert load(after.content)[".down"].any()


def test_a_checkpoint_keeps_c(tmp_path):
    with running(tmp_path / "server", scaffold, clients=2) as server:
        peer = server.enrol()
        take_part(server, peer, DELTA)
    with running(tmp_path / "server", scaffold, clients=2) as server:
        assert torch.equal(server.service.engine.coordinator.algorithm.down(), DELTA / 2)
        peer = server.enrol()
        assert torch.equal(load(downloaded(peer, peer.check_in()["version"]).content)[".down"], DELTA / 2)


def test_a_model_is_read_as_without_it(tmp_path):
    files = ModelFiles(tmp_path, LAYOUT)
    files.write(3, DELTA, 2 * DELTA)
    assert torch.equal(files.read(3), DELTA)
    files.publish(3)
    assert torch.equal(files.read(3), DELTA)


def test_an_exported_model_comes_without_it(tmp_path):
    with running(tmp_path / "server", scaffold, clients=1) as server:
        take_part(server, server.enrol(), DELTA)
    output = tmp_path / "model.safetensors"
    said = CliRunner().invoke(cli_service.export, [str(tmp_path / "server"), "--output", str(output)])
    assert said.output == f"Version 1: {output}\n"
    tensors = load_file(output)
    assert sorted(tensors) == ["bias", "weight"]
    assert torch.equal(torch.cat([tensors["weight"].view(-1), tensors["bias"]]), -DELTA)


@pytest.mark.parametrize("since", [None, 7])
def test_a_client_that_has_lost_its_c_i_is_told_so_and_its_place_is_free(since, tmp_path):
    with running(tmp_path / "server", scaffold, clients=2) as server:
        peer, other = server.enrol(), server.enrol()
        take_part(server, peer, DELTA)
        visit = peer.check_in()
        assert visit["since"] == 0
        answer = peer.put(visit, body_of(DELTA), since=since)
        assert kind_of(answer, 422) == "lost-memory"
        assert "lost its control variate" in answer.json()["detail"]
        assert torch.equal(server.service.engine.coordinator.algorithm.down(), DELTA / 2)
        assert other.check_in() is not None


def test_an_update_of_fewer_steps_is_malformed_and_changes_nothing(tmp_path):
    with running(tmp_path / "server", scaffold, clients=1) as server:
        peer = server.enrol()
        visit = peer.check_in()
        assert kind_of(peer.put(visit, body_of(DELTA), steps=PLAN.steps - 1), 422) == "malformed-update"
        assert server.service.engine.coordinator.algorithm.version == 0
        assert peer.send(visit, DELTA)["counted"]
