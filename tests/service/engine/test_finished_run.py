"""The open visits of a run that finishes: closed at once, and what a client was answered stays true."""

import sys
from pathlib import Path
from typing import Any

import pytest

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.early_stop import EarlyStop
from offbeat.service.live.live_state import live_state
from offbeat.service.server import stopped_server
from tests.service.conftest import Peer, Served, running
from tests.service.http_client import ONES, until

# It has no result before its argument names a file.
EVALUATE = """
import pathlib, sys, time
for _ in sys.stdin:
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
    print('{"loss": 0.5}', flush=True)
"""


def make() -> FedBuff:
    return FedBuff(buffer_size=1, concurrency=4)


def rounds() -> FedAvg:
    return FedAvg(cohort=3)


def target() -> EarlyStop:
    return EarlyStop("loss", lower_is_better=True, target=0.5)


def visit_of(peer: Peer) -> dict[str, Any]:
    visit = peer.check_in()
    assert visit is not None
    return visit


def finish(server: Served) -> tuple[Peer, Peer, list[dict[str, Any]]]:
    """Finish a run of one version while a visit is open and another one's lease has lapsed; return those two."""
    peer, working, lapsed = server.enrol(), server.enrol(), server.enrol()
    visits = [visit_of(lapsed)]
    until(lambda: server.admin.http.get("/v1/status").json()["lost"] == 1)
    visits.append(visit_of(working))
    assert peer.send(visit_of(peer), ONES)["counted"]
    return lapsed, working, visits


def extend(server: Served, versions: int) -> None:
    assert server.admin.http.post("/v1/admin/extend", json={"versions": versions}).status_code == 200


@pytest.mark.parametrize("restarts", [False, True])
def test_an_update_that_did_not_count_does_not_count_when_it_is_repeated_after_an_extension(
    restarts: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "server"
    answers = [{"counted": False, "staleness": 1, "new_version": False}] * 2
    with running(folder, make, stop_versions=1, lease_seconds=1.0) as server:
        *late, visits = finish(server)
        assert [peer.send(visit, ONES) for peer, visit in zip(late, visits, strict=True)] == answers
        if not restarts:
            extend(server, 3)
            assert [peer.send(visit, ONES) for peer, visit in zip(late, visits, strict=True)] == answers
    with running(folder, make, stop_versions=1, lease_seconds=1.0) as server:
        if restarts:
            extend(server, 3)
        late = [server.peer(peer.token) for peer in late]
        assert [peer.send(visit, ONES) for peer, visit in zip(late, visits, strict=True)] == answers
        assert server.service.engine.coordinator.algorithm.version == 1
        for peer in late:
            visit = visit_of(peer)
            assert visit["number"] == 1
            assert peer.send(visit, ONES)["counted"]


def test_no_client_is_at_work_in_a_finished_run(tmp_path: Path) -> None:
    with running(tmp_path / "server", make, stop_versions=1, lease_seconds=1.0) as server:
        finish(server)
        status = server.admin.http.get("/v1/status").json()
        assert (status["at_work"], status["counted"], status["unused"], status["lost"]) == (0, 1, 0, 2)
        rows = server.admin.http.get("/v1/admin/clients").json()["clients"]
        assert [(row["counted"], row["lost"], row["working"]) for row in rows] == [
            (1, 0, False),
            (0, 1, False),
            (0, 1, False),
        ]
        assert live_state(server.service)["visits"]["total"] == 0
    assert stopped_server.clients(tmp_path / "server") == rows


def test_the_end_does_not_make_a_version_of_a_part_of_a_round(tmp_path: Path) -> None:
    go = tmp_path / "go"
    settings: dict[str, Any] = {"evaluate_every": 1, "evaluate_command": [sys.executable, "-c", EVALUATE, str(go)]}
    with running(tmp_path / "server", rounds, early_stop=target(), **settings) as server:
        peers = [server.enrol() for _ in range(3)]
        for peer, visit in [(peer, visit_of(peer)) for peer in peers]:
            assert peer.send(visit, ONES)["counted"]
        first, *others = [visit_of(peer) for peer in peers]
        assert peers[0].send(first, ONES)["counted"]
        go.touch()
        until(lambda: server.service.status().finished and not server.service.status().at_work)
        for peer, visit in zip(peers[1:], others, strict=True):
            assert peer.http.post(f"/v1/visits/{visit['number']}/give-up").status_code == 204
            assert not peer.send(visit, ONES)["counted"]
        assert server.service.status().version == 1
