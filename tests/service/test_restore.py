"""A server that was restored from a backup makes other bytes of a version than its clients have."""

import hashlib

import pytest
import torch
from offbeat_client.http.connection import Connection
from offbeat_client.http.model_download import download
from offbeat_core.messages import CheckedIn, CheckInRequest

from offbeat.service.store.backup import back_up
from tests.service.client_evaluation.peers import able, answer, check_in, serving, work
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of


@pytest.fixture
def lost(tmp_path):
    """Return a backup of version 0, a client's token, and what the client got of version 1 before it was lost."""
    with running(tmp_path / "server") as server:
        peer, other = server.enrol(), server.enrol()
        visits = peer.check_in(), other.check_in()
        back_up(server.folder, tmp_path / "copy")
        for sender, visit in zip((peer, other), visits, strict=True):
            sender.send(visit, torch.ones(LENGTH))
        visit = peer.check_in()
        assert visit["version"] == 1
        return peer.token, other.token, visit, peer.http.get("/v1/models/1")


@pytest.fixture
def restored(tmp_path, lost):
    """A server of the backup, with another version 1; its first client works on it."""
    with running(tmp_path / "copy") as server:
        peer, other = (server.peer(token) for token in lost[:2])
        for sender in (peer, other):
            sender.send(sender.check_in(), -torch.ones(LENGTH))
        assert peer.check_in()["version"] == 1
        yield server


def test_a_part_of_the_lost_version_is_not_completed_with_the_new_one(lost, restored):
    peer, before = restored.peer(lost[0]), lost[3]
    again = {"Range": "bytes=100-", "If-Range": before.headers["etag"]}
    after = peer.http.get("/v1/models/1", headers=again)
    assert after.status_code == 200
    assert after.content != before.content
    assert peer.http.get("/v1/models/1", headers={"If-None-Match": before.headers["etag"]}).content == after.content
    assert before.headers["cache-control"] == "private, no-cache"  # no cache may answer without asking


@pytest.mark.parametrize("part", [100, None])
def test_a_client_uses_nothing_of_the_lost_version(lost, restored, tmp_path, part):
    token, _, visit, before = lost
    name = f"model-{visit['model_sha256']}.safetensors" if part is None else f"download-{visit['model_sha256']}.partial"
    (tmp_path / name).write_bytes(before.content[:part])
    assert hashlib.sha256(before.content).hexdigest() == visit["model_sha256"]
    with Connection(restored.url, token) as connection:
        checked_in = connection.ask("POST", "/v1/checkin", CheckedIn, CheckInRequest())
        assert checked_in.visit.version == 1
        content = download(connection, checked_in.visit, tmp_path).read_bytes()
    assert content == restored.peer(token).http.get("/v1/models/1").content
    assert content != before.content
    assert len(list(tmp_path.glob("*-*"))) == 1


def test_an_update_from_the_lost_version_does_not_count(lost, restored):
    peer, visit = restored.peer(lost[0]), lost[2]
    now = peer.check_in()
    assert (now["number"], now["version"]) == (visit["number"], visit["version"])
    assert kind_of(peer.put(visit, body_of(torch.ones(LENGTH))), 404) == "no-such-visit"
    assert peer.send(now, torch.ones(LENGTH))["counted"]


def test_an_evaluation_of_the_lost_version_does_not_count(tmp_path):
    with serving(tmp_path / "server", number=1, every=1) as server:
        peer = able(server.enrol())
        check_in(peer)
        back_up(server.folder, tmp_path / "copy")
        work(peer)
        lost = check_in(peer)["evaluation"]
    with serving(tmp_path / "copy", number=1, every=1) as server:
        peer = able(server.peer(peer.token))
        assert peer.put(check_in(peer)["visit"], body_of(2 * torch.ones(LENGTH))).status_code == 200
        assert check_in(peer)["evaluation"]["version"] == lost["version"] == 1
        result = {"model_sha256": lost["model_sha256"], "examples": 1, "metrics": {"accuracy": 0.5}}
        assert kind_of(peer.http.post("/v1/evaluations/1", json=result), 404) == "no-such-evaluation"
        assert answer(peer, 1, accuracy=0.5).json()["counted"]
