"""Outcomes that a log need not have: those of visits that were replaced."""

import os
import signal
from pathlib import Path

import pytest
import torch

from offbeat.coordinator import Receipt
from tests.e2e.server_process import Launcher, Server, until
from tests.e2e.undisturbed import Undisturbed
from tests.service.conftest import Peer, body_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

LENGTH = 20


def test_that_a_replaced_visit_did_not_count_is_known_without_a_record(launcher: Launcher, tmp_path: Path) -> None:
    with Server(launcher, tmp_path, "algorithm = 'fedasync'\nconcurrency = 2", LENGTH, clients=2) as server:
        server.start()
        server.version()  # it answers now
        peer = Peer(server.url, server.token("enrolment"))
        token = peer.http.post("/v1/enrol", json={}).json()["token"]
        peer.http.headers["Authorization"] = f"Bearer {token}"

        first = peer.check_in()
        assert first is not None
        following = until(lambda: None if (visit := peer.check_in()) == first else visit)  # when its lease has ended
        late = Receipt(**peer.send(first, torch.ones(LENGTH)))
        counted = Receipt(**peer.send(following, torch.ones(LENGTH)))
        assert peer.check_in() is not None
        peer.http.close()
        assert server.kill(signal.SIGTERM) == 0

    assert counted.counted
    undisturbed = Undisturbed(server.file, server.folder, lambda *_: torch.ones(LENGTH), body_of)
    undisturbed.check({(0, 0): late, (0, 1): counted})
    with pytest.raises(AssertionError, match=r"\(0, 0\)"):
        undisturbed.check({(0, 0): late._replace(counted=True)})
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        undisturbed.check({(0, 2): late})
