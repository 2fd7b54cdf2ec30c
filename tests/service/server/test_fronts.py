"""Fronts in processes of their own: clients notice nothing."""

import os
import signal

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.server import fronts as fronts_module
from tests.service.conftest import body_of, running
from tests.service.http_client import NANS, ONES, check_log, kind_of, put_in_pieces, until


@pytest.fixture(scope="module")
def fronts(tmp_path_factory):
    with running(tmp_path_factory.mktemp("fronts") / "server", front_processes=2, clients=1000) as server:
        yield server


def test_clients_take_part(fronts):
    peers = [fronts.enrol() for _ in range(3)]
    for _ in range(2):
        for peer in peers:
            assert peer.send(peer.check_in(), ONES)["counted"]
    visit = peers[0].check_in()
    assert put_in_pieces(peers[0], visit, body_of(ONES)).json()["receipt"]["counted"]
    assert fronts.service.engine.coordinator.statistics.counted == 7
    check_log(fronts.folder)


def test_a_version_is_downloaded_whole_in_part_or_not_at_all(fronts):
    peer = fronts.enrol()
    version = peer.check_in()["version"]
    whole = peer.http.get(f"/v1/models/{version}")
    assert whole.content == fronts.service.engine.models.path(version).read_bytes()
    part = peer.http.get(f"/v1/models/{version}", headers={"Range": "bytes=8-15"})
    assert (part.status_code, part.content) == (206, whole.content[8:16])
    known = peer.http.get(f"/v1/models/{version}", headers={"If-None-Match": whole.headers["etag"]})
    assert known.status_code == 304
    assert peer.http.get("/v1/models/latest", follow_redirects=False).headers["location"].isdecimal()
    assert kind_of(peer.http.get("/v1/models/99"), 404) == "no-such-version"
    assert kind_of(fronts.admin.http.get(f"/v1/models/{version}"), 403) == "foreign-token"
    assert fronts.admin.http.get("/v1/admin/model").content[:8] == whole.content[:8]


@pytest.mark.parametrize("pieces", [False, True], ids=["small", "large"])
def test_what_is_wrong_is_refused(fronts, pieces):
    peer = fronts.enrol()
    visit = peer.check_in()
    put = put_in_pieces if pieces else peer.put
    assert kind_of(put(visit, body_of(NANS)) if not pieces else put(peer, visit, body_of(NANS)), 422) == "not-finite"
    assert kind_of(peer.put(visit, body_of(ONES), version=99), 422) == "wrong-version"
    assert kind_of(peer.put({**visit, "number": 10**6}, body_of(ONES)), 404) == "no-such-visit"
    assert kind_of(fronts.peer("obc_" + 43 * "a").http.post("/v1/checkin", json={}), 401) == "unknown-token"
    assert kind_of(fronts.peer(None).put(visit, body_of(ONES)), 401) == "no-token"
    assert peer.send(visit, ONES)["counted"]


def test_a_revoked_client_is_refused_at_once(fronts):
    peer = fronts.enrol()
    visit = peer.check_in()
    number = len(fronts.service.accounts) - 1
    assert fronts.admin.http.delete(f"/v1/clients/{number}").status_code == 204
    for answer in (
        peer.put(visit, body_of(ONES)),
        peer.http.get(f"/v1/models/{visit['version']}"),
        peer.http.post("/v1/checkin", json={}),
        peer.http.get(f"/v1/uploads/{visit['number']}"),
    ):
        assert kind_of(answer, 401) == "revoked-token"


def test_a_client_that_waits_gets_work_as_soon_as_there_is_some(tmp_path):
    with running(tmp_path / "server", front_processes=1, clients=9) as server:
        busy = [server.enrol() for _ in range(4)]
        visits = [peer.check_in() for peer in busy]
        waiting = server.enrol()
        assert waiting.http.post("/v1/checkin", json={"wait_seconds": 0.0}).json()["visit"] is None
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(waiting.http.post, "/v1/checkin", json={"wait_seconds": 30.0})
            until(lambda: len(server.service.engine.waiting) == 1)
            busy[0].send(visits[0], ONES)
            assert asked.result(10).json()["visit"] is not None


def test_the_leaders_own_routes_are_passed_on(fronts):
    assert fronts.admin.http.get("/v1/status").json()["algorithm"] == "fedbuff"
    assert "offbeat_refusals_total" in fronts.admin.http.get("/metrics").text
    page = fronts.peer(None).http.get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert kind_of(fronts.admin.http.get("/v1/nothing"), 404) == "not-found"
    assert kind_of(fronts.admin.http.post("/v1/admin/extend", content=b"x" * 2**17), 413) == "too-large"
    data = fronts.admin.http.get("/v1/admin/live").json()
    assert data["history"]["whole"]
    assert not fronts.admin.http.get("/v1/admin/live", params={"since": data["id"]}).json()["history"]["whole"]


def test_a_front_that_dies_is_started_again(fronts):
    peer = fronts.enrol()
    visit = peer.check_in()
    processes = {process.pid for process in fronts.fronts.children}
    for process in processes:
        os.kill(process, signal.SIGKILL)
    until(lambda: {each.pid for each in fronts.fronts.children if each.is_alive()}.isdisjoint(processes))
    until(lambda: len([each for each in fronts.fronts.children if each.is_alive()]) == 2)
    assert fronts.peer(peer.http.headers["authorization"].split()[1]).send(visit, ONES)["counted"]


def test_fronts_are_sent_away_while_another_server_may_lead(fronts):
    peer, log_writer = fronts.enrol(), fronts.service.engine.log_writer
    until(lambda: len(fronts.fronts._endpoint.fronts) == 2)
    channels = set(fronts.fronts._endpoint.channels)
    log_writer._last_sign = -1e6
    until(lambda: fronts.fronts._endpoint.channels.isdisjoint(channels))
    assert fronts.fronts._endpoint.epoch is None
    log_writer._last_sign = None
    until(lambda: len(fronts.fronts._endpoint.fronts) == 2)
    assert peer.send(peer.check_in(), ONES)["counted"]


def test_fronts_that_fail_again_and_again_end_the_server(tmp_path, monkeypatch):
    def serve_without_fronts():
        with running(tmp_path / "server", front_processes=1) as server:
            until(lambda: server.fronts._is_closing, 60)

    monkeypatch.setattr(fronts_module, "_PAUSE_SECONDS", 0.0)
    (tmp_path / "server" / "fronts").mkdir(parents=True)
    (tmp_path / "server" / "fronts" / "0").touch()  # where the front's folder should be
    with pytest.raises(OffbeatError, match="fronts fail again and again"):
        serve_without_fronts()
