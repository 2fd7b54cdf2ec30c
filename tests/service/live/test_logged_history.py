from pathlib import Path

import pytest

from offbeat.algorithms import FedBuff
from offbeat.service.live import logged_history as module
from tests.service.client_evaluation import peers as evaluating
from tests.service.conftest import Peer, Served, running
from tests.service.http_client import ONES, kind_of


def history(server: Served, client: int) -> dict[str, list[list[object]]]:
    return server.admin.http.get(f"/v1/admin/clients/{client}/history").json()


def send(peer: Peer) -> bool:
    visit = peer.check_in()
    assert visit is not None
    return peer.send(visit, ONES)["counted"]


def test_updates_of_one_site_also_after_a_restart(tmp_path: Path) -> None:
    make = lambda: FedBuff(buffer_size=1, concurrency=4)  # noqa: E731
    with running(tmp_path / "server", make, clients=20, max_staleness=1) as server:
        peers = [server.enrol() for _ in range(12)]
        late = peers[1].check_in()
        assert late is not None
        assert all([send(peers[11]), send(peers[0]), send(peers[11])])
        receipt = peers[1].send(late, ONES)
        assert (receipt["counted"], receipt["staleness"]) == (False, 3)
        server.checkpoint()
    with running(tmp_path / "server", make, clients=20, max_staleness=1) as server:
        assert send(server.peer(peers[11].token))
        updates = history(server, 11)["updates"]
        assert [update[1:] for update in updates] == [[True, 0]] * 3
        assert updates == sorted(updates)
        assert 0 < updates[0][0] < server.service.engine.run.now
        assert [update[1:] for update in history(server, 1)["updates"]] == [[False, 3]]  # and none of client 11
        assert history(server, 5) == {"updates": [], "evaluations": []}
        assert kind_of(server.admin.http.get("/v1/admin/clients/12/history"), 404) == "no-such-client"


def test_only_the_newest_rows_are_searched_and_the_newest_updates_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "server") as server:
        peers = [server.enrol(), server.enrol()]
        for _ in range(4):
            send(peers[0])
        assert len(history(server, 0)["updates"]) == 4
        monkeypatch.setattr(module, "_MOST", 3)
        last = history(server, 0)["updates"]
        assert len(last) == 3
        monkeypatch.setattr(module, "_MOST", 200)
        assert history(server, 0)["updates"][1:] == last
        monkeypatch.setattr(module, "_SEARCHED", 2)  # an assignment and an update
        assert len(history(server, 0)["updates"]) == 1


def test_evaluations_of_one_site(tmp_path: Path) -> None:
    with evaluating.serving(tmp_path / "server", number=2, every=1) as server:
        peers = evaluating.clients_of(server, 2)
        evaluating.work(peers[0])
        evaluating.finish_visits(peers)
        for number, peer in enumerate(peers):
            assert evaluating.answer(peer, 1, accuracy=0.5 + number / 4).json()["counted"]
        assert history(server, 0)["evaluations"] == [[1, {"accuracy": 0.5}]]
        assert history(server, 1)["evaluations"] == [[1, {"accuracy": 0.75}]]


def test_the_audit_log_a_page_at_a_time_newest_first(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        for _ in range(5):
            server.enrol()
        found: list[dict[str, object]] = []
        before = None
        while True:
            query = {"limit": 3} if before is None else {"limit": 3, "before": before}
            page = server.admin.http.get("/v1/admin/audit", params=query).json()
            found += page["entries"]
            assert len(page["entries"]) == 3 or page["next"] is None
            if (before := page["next"]) is None:
                break
        assert [entry["number"] for entry in found] == list(range(len(found), 0, -1))
        assert [entry["facts"]["client"] for entry in found[:5]] == [4, 3, 2, 1, 0]
        assert {entry["kind"] for entry in found[:5]} == {"client enrolled"}
        assert found[-1]["kind"] == "server started"
        assert found[0]["at"] == pytest.approx(server.service.accounts.sites[4].enrolled, abs=2)


def test_each_role_sees_what_it_may(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        server.enrol()
        may = {
            "viewer": {"clients/0/history", "settings"},
            "operator": {"clients/0/history", "settings", "log"},
            "admin": {"clients/0/history", "settings", "log", "audit"},
        }
        for role, expected in may.items():
            token = server.admin.http.post("/v1/tokens", json={"kind": role}).json()["token"]
            http = server.peer(token).http
            answers = {path: http.get(f"/v1/admin/{path}").status_code for path in may["admin"]}
            assert {path for path, status in answers.items() if status == 200} == expected
            assert set(answers.values()) <= {200, 403}


def test_settings_are_those_of_the_run_without_a_secret(tmp_path: Path) -> None:
    config = {"algorithm": {"algorithm": "fedbuff", "buffer_size": 2}}
    with running(tmp_path / "server", config=config, lease_seconds=60.0) as server:
        answer = server.admin.http.get("/v1/admin/settings")
        assert answer.json()["config"] == config
        assert answer.json()["settings"]["port"] == 0
        for secret in (server.admin.token, server.enrolment_token):
            assert secret is not None
            assert secret not in answer.text
