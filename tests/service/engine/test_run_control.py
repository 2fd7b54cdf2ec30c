"""Pauses of a run whose clients also evaluate."""

import time
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.server import admin
from tests.service.client_evaluation.peers import answer, check_in, clients_of, make_versions, serving
from tests.service.http_client import until


def test_while_paused_no_evaluation_is_given_out_and_none_is_lost(tmp_path: Path) -> None:
    with serving(tmp_path / "server", lease_seconds=1.0) as served:
        peers = clients_of(served, 2)
        served.admin.http.post("/v1/admin/pause")
        make_versions(peers, 2)  # of their open visits
        assert [check_in(peer)["evaluation"] for peer in peers] == [None, None]
        time.sleep(1.5)  # longer than a round waits
        served.admin.http.post("/v1/admin/resume")
        asked = [check_in(peer)["evaluation"] for peer in peers]
        assert [evaluation["version"] for evaluation in asked] == [2, 2]
        for peer in peers:
            assert answer(peer, 2, accuracy=0.5).json()["counted"]
        assert served.admin.http.get("/v1/status").json()["evaluated_by_clients"]["answered"] == 2


def test_a_full_disk_refuses_a_pause_and_changes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "server") as served:
        served.service.engine.disk.mark_full("no space")
        for path, body in (("pause", None), ("resume", None), ("extend", {"versions": 10**6})):
            assert served.admin.http.post(f"/v1/admin/{path}", json=body).status_code == 503
        with pytest.raises(OffbeatError, match="log cannot be written") as refused:
            admin.set_paused(tmp_path / "server", is_paused=True)
        assert "start it" not in str(refused.value)
        assert not served.service.engine.run.is_paused
        until(lambda: served.admin.http.post("/v1/admin/pause").status_code == 200)
        assert served.service.engine.run.is_paused
