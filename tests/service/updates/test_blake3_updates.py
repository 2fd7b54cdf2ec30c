"""Updates whose digest is BLAKE3."""

import shutil

import pytest
import torch

from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, kind_of, put_in_pieces

blake3 = pytest.importorskip("blake3").blake3


def with_blake3(body):
    return {"sha256": None, "blake3": blake3(body).hexdigest()}


@pytest.mark.parametrize("in_pieces", [False, True], ids=["small", "large"])
def test_updates_with_either_digest_count_and_outlive_a_kill(tmp_path, in_pieces):
    body, other = body_of(ONES), body_of(3 * ONES)
    with running(tmp_path / "server", digest="blake3", checkpoint_seconds=1e6) as server:
        first, second = server.enrol(), server.enrol()
        visit = first.check_in()
        assert visit["digest"] == "blake3"
        put = (
            put_in_pieces
            if in_pieces
            else lambda peer, visit, body, **changes: peer.put(visit, body, head=peer.head(visit, body, **changes))
        )
        wrong = with_blake3(other)
        assert kind_of(put(first, visit, body, **wrong), 422) == "wrong-digest"
        answer = put(first, visit, body, **with_blake3(body))
        assert answer.json()["receipt"]["counted"]
        repeated = first.put(visit, body, head=first.head(visit, body, **with_blake3(body)))
        assert repeated.json()["receipt"] == answer.json()["receipt"]
        assert kind_of(first.put(visit, body), 409) == "other-upload"  # by SHA-256, so it may be another one
        assert put(second, second.check_in(), other).json()["receipt"]["counted"]
        server.admin.http.get("/v1/status")
        model = server.service.engine.coordinator.algorithm.model.clone()
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
    with running(tmp_path / "killed") as server:  # the setting may change
        algorithm = server.service.engine.coordinator.algorithm
        assert algorithm.version == 1
        assert torch.equal(algorithm.model, model)
        peer = server.enrol()
        assert peer.check_in()["digest"] == "sha256"
