import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from offbeat_core.errors import OffbeatError
from safetensors.torch import load

from offbeat.algorithms import FedBuff, FedLaAvg
from offbeat.service.audit.verification import entries, verify
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import ONES, ask, kind_of, line, until


def test_the_status_and_the_metrics_count(server):
    peers = [server.enrol() for _ in range(2)]
    assert peers[0].send(peers[0].check_in(), torch.ones(LENGTH))["counted"]
    peers[1].check_in()
    status = server.admin.http.get("/v1/status").json()
    expected = {"algorithm": "fedbuff", "version": 0, "finished": False, "enrolled": 2, "clients": 5, "assigned": 2}
    assert expected.items() <= status.items()
    assert (status["counted"], status["unused"], status["lost"], status["waits_for"]) == (1, 0, 0, None)
    assert status["at_work"] == 1  # docs/concepts/operate.md promises it
    metrics = server.admin.http.get("/metrics").text.splitlines()
    for expected in (
        'offbeat_updates_total{outcome="counted"} 1.0',
        "offbeat_in_flight 1.0",
        "offbeat_enrolled 2.0",
        "offbeat_version 0.0",
        "offbeat_waiting 0.0",
    ):
        assert expected in metrics


def test_metrics_count_an_update_once_that_is_asked_about_again_also_after_a_restart(tmp_path):
    make = lambda: FedBuff(buffer_size=1, concurrency=2)  # noqa: E731
    expected = {f'offbeat_updates_total{{outcome="{outcome}"}} 1.0' for outcome in ("counted", "unused")}
    with running(tmp_path / "server", make, max_staleness=0) as server:
        fast, slow = server.enrol(), server.enrol()
        visit = slow.check_in()
        assert fast.send(fast.check_in(), ONES)["counted"]
        for _ in range(2):
            assert not slow.http.get(f"/v1/uploads/{visit['number']}").json()["receipt"]["counted"]
        assert expected <= set(server.admin.http.get("/metrics").text.splitlines())
    with running(tmp_path / "server", make, max_staleness=0) as server:
        assert expected <= set(server.admin.http.get("/metrics").text.splitlines())


def test_a_revoked_client_frees_its_slot_at_once(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1), clients=2) as server:
        revoked, waiting = server.enrol(), server.enrol()
        assert revoked.check_in()
        assert waiting.check_in() is None
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(waiting.check_in, 20.0)
            until(lambda: len(server.service.engine.waiting))
            assert server.admin.http.delete("/v1/clients/0").status_code == 204
            assert answer.result(5.0)["version"] == 0
        assert server.admin.http.get("/v1/status").json()["lost"] == 1


def test_two_check_ins_of_a_client_get_the_same_work(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1), clients=2) as server:
        first, second = server.enrol(), server.enrol()
        visit = first.check_in()
        with ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(peer.check_in, 20.0) for peer in (second, server.peer(second.token))]
            time.sleep(0.5)
            assert first.send(visit, torch.ones(LENGTH))["counted"]
            one, other = (answer.result(5.0) for answer in answers)
        assert one is not None
        assert one == other


def test_health_and_readiness_need_no_token_and_a_server_that_stops_is_not_ready(tmp_path):
    with running(tmp_path / "server", lambda: FedLaAvg(cohort=2), clients=2, waits_for_examples=True) as server:
        nobody = server.peer(None).http
        assert nobody.get("/healthz").text == "ok\n"
        ready = nobody.get("/readyz")
        assert (ready.status_code, ready.text) == (200, "waits for 2 of 2 clients to enrol or declare examples\n")
        peer = server.enrol()
        server.service.is_ready = False
        ready = nobody.get("/readyz")
        assert (ready.status_code, ready.text) == (503, "stopping\n")
        assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "stopping"


CLIENTS = "/v1/admin/clients"
ROUTES = [
    ("GET", CLIENTS),
    ("POST", f"{CLIENTS}/0/rename"),
    ("POST", "/v1/admin/pause"),
    ("POST", "/v1/admin/resume"),
    ("POST", "/v1/admin/extend"),
    ("GET", "/v1/admin/model"),
    ("GET", "/v1/admin/live"),
]


def listed(server, **params):
    answer = server.admin.http.get(CLIENTS, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_clients_are_listed_with_what_became_of_their_visits(tmp_path):
    make = lambda: FedBuff(buffer_size=1, concurrency=4)  # noqa: E731
    with running(tmp_path / "server", make, max_staleness=0) as server:
        fast, slow, given_up, idle = (server.enrol(name=name) for name in ("fast", "slow", "given up", "<b>é\u4e2d"))
        visits = [peer.check_in() for peer in (fast, slow, given_up)]
        assert fast.send(visits[0], ONES)["counted"]
        assert fast.send(fast.check_in(), ONES)["counted"]
        assert not slow.send(visits[1], ONES)["counted"]
        assert given_up.http.post(f"/v1/visits/{visits[2]['number']}/give-up").status_code == 204
        assert fast.check_in()
        page = listed(server)
    assert (page["total"], page["next"]) == (4, None)
    rows = page["clients"]
    assert [row["name"] for row in rows] == ["fast", "slow", "given up", "<b>é\u4e2d"]
    counts = ("visits", "counted", "refused", "lost", "working", "mean_staleness", "revoked")
    assert [tuple(row[name] for name in counts) for row in rows] == [
        (3, 2, 0, 0, True, 0.0, None),
        (1, 0, 1, 0, False, None, None),
        (1, 0, 0, 1, False, None, None),
        (0, 0, 0, 0, False, None, None),
    ]
    for row in rows:
        assert row["enrolled"] <= row["last_seen"]
    assert idle.token


def test_the_list_comes_in_pages(shared_server):
    for _ in range(5):
        shared_server.enrol()
    whole = listed(shared_server, limit=1000)
    assert [row["client"] for row in whole["clients"]] == list(range(whole["total"]))
    first = listed(shared_server, limit=2)
    assert ([row["client"] for row in first["clients"]], first["next"]) == ([0, 1], 1)
    second = listed(shared_server, limit=whole["total"] - 2, after=1)
    assert (second["clients"], second["next"]) == (whole["clients"][2:], None)
    assert listed(shared_server, after=2**63 - 1)["clients"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=NaN", "after=-1", "after=x", "after=1e5"]
)
def test_a_malformed_page_is_refused(query, shared_server):
    assert kind_of(shared_server.admin.http.get(f"{CLIENTS}?{query}"), 400) == "malformed-request"


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_only_an_admin_may(method, path, shared_server):
    client = shared_server.enrol()
    enrols = shared_server.peer(shared_server.enrolment_token)
    for peer, status, kind in (
        (client, 403, "foreign-token"),
        (enrols, 403, "foreign-token"),
        (shared_server.peer(None), 401, "no-token"),
        (shared_server.peer("oba_" + "x" * 43), 401, "unknown-token"),
        (shared_server.peer("<script>"), 401, "unknown-token"),
    ):
        body = {"json": {"name": "x", "versions": 10**6}} if method == "POST" else {}
        assert kind_of(peer.http.request(method, path, **body), status) == kind
    assert not shared_server.admin.http.get("/v1/status").json()["paused"]


@pytest.mark.parametrize("path", [path for method, path in ROUTES if method == "POST"])
def test_a_huge_body_is_not_read(path, shared_server):
    with line(shared_server, shared_server.admin) as opened:
        opened.begin("POST", path, "Content-Type: application/json", length=10**9)
        opened.send(b'{"name": "' + b"x" * 70_000)
        assert kind_of(opened.answer(), 413) == "too-large"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(
            (f"{CLIENTS}/0/rename", body)
            for body in (
                b'{"name": ""}', b'{"name": " "}', b'{"name": 3}', b'{"name": null}', b"{}", b"[]", b"NaN", b"{",
                b'{"name": "\\ud800"}', b'{"name": "\\u0000"}', b'{"name": "\\u001b[31m"}', b'{"name": "a\\nb"}',
                b'{"name": "\\u202egnp.exe"}', b'{"name": "\\u2028"}', b'{"name": "' + b"a" * 101 + b'"}',
                b'{"name": "x", "client": 1}', b"[" * 60_000,
            )
        ),
        *(
            ("/v1/admin/extend", body)
            for body in (
                b'{"versions": NaN}', b'{"versions": Infinity}', b'{"versions": -1}', b'{"versions": 0}',
                b'{"versions": 1.5}', b'{"versions": "9"}', b'{"versions": true}', b'{"versions": null}', b"{}",
                b'{"versions": 1' + b"0" * 400 + b"}",
            )
        ),
    ],
    ids=lambda value: ascii(value[:24]),
)  # fmt: skip
def test_a_malformed_wish_changes_nothing(path, body, shared_server):
    shared_server.enrol()
    before = [row["name"] for row in listed(shared_server)["clients"]]
    answer = ask(shared_server, shared_server.admin, "POST", path, "Content-Type: application/json", body=body)
    assert kind_of(answer, 400) == "malformed-request"
    assert [row["name"] for row in listed(shared_server)["clients"]] == before


@pytest.mark.parametrize(("number", "status"), [("9999", 404), (str(2**63 - 1), 404), (str(2**63), 400), ("-1", 400)])
def test_an_unknown_client_cannot_be_renamed(number, status, shared_server):
    answer = shared_server.admin.http.post(f"{CLIENTS}/{number}/rename", json={"name": "x"})
    assert kind_of(answer, status) == {404: "no-such-client", 400: "malformed-request"}[status]


def test_names_may_have_any_script_and_last_over_a_restart(tmp_path):
    names = ["Würzburg 3", "\u0627\u0644\u0645\u0631\u06a9\u0632\u200c\u0647\u0627", "病院", "👩\u200d⚕️", "<b>x",
             "'); DROP TABLE clients; --"]  # fmt: skip
    folder = tmp_path / "server"
    with running(folder, clients=6) as server:
        for number, name in enumerate(names):
            server.enrol(name="before")
            for _ in range(2):
                answer = server.admin.http.post(f"{CLIENTS}/{number}/rename", json={"name": name})
                assert answer.status_code == 204, answer.text
        assert [row["name"] for row in listed(server)["clients"]] == names
    with running(folder, clients=6) as server:
        assert [row["name"] for row in listed(server)["clients"]] == names
    renamed = [entry for entry in entries(folder) if entry["kind"] == "client renamed"]
    assert [entry["client"] for entry in renamed] == [*range(len(names))]
    assert not any(name in entry.values() for entry in entries(folder) for name in [*names, "before"])  # to be erasable


def test_a_revoked_client_is_listed_with_the_time_also_after_a_restart(tmp_path):
    with running(tmp_path / "server") as server:
        server.enrol(), server.enrol()
        assert server.admin.http.delete("/v1/clients/1").status_code == 204
        rows = listed(server)["clients"]
        assert server.admin.http.delete("/v1/clients/1").status_code == 204
        assert listed(server)["clients"] == rows
    assert rows[0]["revoked"] is None
    assert rows[1]["revoked"] >= rows[1]["enrolled"] > 1.7e9
    with running(tmp_path / "server") as server:
        assert listed(server)["clients"] == rows


def test_while_paused_nobody_gets_work_and_open_visits_count_also_after_a_kill(tmp_path):
    folder = tmp_path / "server"
    with running(folder) as server:
        busy, idle = server.enrol(), server.enrol()
        visit = busy.check_in()
        for _ in range(2):
            assert server.admin.http.post("/v1/admin/pause").json() == {"paused": True}
        assert idle.check_in() is None
        assert busy.check_in() == visit
        assert busy.send(visit, ONES)["counted"]
        assert busy.check_in() is None
        status = server.admin.http.get("/v1/status").json()
        assert (status["paused"], status["waits_for"], status["assigned"]) == (True, "an admin to resume it", 1)
        assert server.peer(None).http.get("/readyz").text == "waits for an admin to resume it\n"
        shutil.copytree(folder, tmp_path / "killed")
    folder = tmp_path / "killed"
    with running(folder) as server:
        busy, idle = server.peer(busy.token), server.peer(idle.token)
        assert busy.check_in() is None
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(idle.check_in, 20.0)
            until(lambda: len(server.service.engine.waiting))
            for _ in range(2):
                assert server.admin.http.post("/v1/admin/resume").json() == {"paused": False}
            assert answer.result(5.0)["version"] == 0
    with running(folder) as server:
        assert not server.admin.http.get("/v1/status").json()["paused"]
    kinds = [entry["kind"] for entry in entries(folder) if entry["kind"].startswith("run")]
    assert kinds == ["run paused", "run resumed"]


def test_a_client_with_its_update_gets_no_next_visit_while_paused(server):
    peer = server.enrol()
    visit = peer.check_in()
    server.admin.http.post("/v1/admin/pause")
    answer = peer.put(visit, body_of(ONES), params={"checkin": "true"}).json()
    assert answer["receipt"]["counted"]
    assert (answer["next"]["visit"], answer["next"]["finished"]) == (None, False)


def test_a_finished_run_is_extended_also_over_a_restart(tmp_path):
    folder, make = tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=4)
    with running(folder, make, stop_versions=1) as server:
        peer, late = server.enrol(), server.enrol()
        unfinished = late.check_in()
        assert peer.send(peer.check_in(), ONES)["counted"]
        assert peer.http.post("/v1/checkin", json={}).json()["finished"]
        assert not late.send(unfinished, ONES)["counted"]
        for _ in range(2):
            answer = server.admin.http.post("/v1/admin/extend", json={"versions": 3})
            assert answer.json() == {"stop_versions": 3, "finished": False}
        assert kind_of(server.admin.http.post("/v1/admin/extend", json={"versions": 2}), 409) == "cannot-extend"
        visit = late.check_in()  # not the one whose update did not count
        assert (visit["number"], visit["version"]) == (1, 1)
        assert late.send(visit, ONES)["counted"]
    with running(folder, make, stop_versions=1) as server:
        assert server.admin.http.get("/v1/status").json()["stop_versions"] == 3
        peer = server.peer(peer.token)
        assert peer.send(peer.check_in(), ONES)["new_version"]
        status = server.admin.http.get("/v1/status").json()
        assert (status["version"], status["finished"]) == (3, True)
        model = server.admin.http.get("/v1/admin/model")
        assert model.headers["content-disposition"] == 'attachment; filename="fedbuff-3.safetensors"'
        assert model.headers["cache-control"] == "no-store"
        assert torch.equal(load(model.content)["bias"], torch.full((2,), -3.0))
    assert verify(folder)
    (entry,) = [entry for entry in entries(folder) if entry["kind"] == "run extended"]
    assert (entry["versions"], entry["before"]) == (3, 1)
    assert entry["by"]


def test_a_finished_run_is_extended_by_its_file(tmp_path):
    folder, make = tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=4)
    with running(folder, make, stop_versions=1, config={"stop": {"versions": 1}}) as server:
        peer, late = server.enrol(), server.enrol()
        assert late.check_in()["number"] == 0
        assert peer.send(peer.check_in(), ONES)["counted"]
        assert not late.http.get("/v1/uploads/0").json()["wanted"]
    with pytest.raises(OffbeatError, match="settings"), running(folder, make, config={"stop": {"target": 0.5}}):
        raise AssertionError("it started")
    for number in (1, 1):  # the second start does not lose the visit
        with running(folder, make, stop_versions=3, config={"stop": {"versions": 3}}) as server:
            assert server.peer(late.token).check_in()["number"] == number


def test_a_run_without_an_end_cannot_be_extended(shared_server):
    answer = shared_server.admin.http.post("/v1/admin/extend", json={"versions": 10**6})
    assert kind_of(answer, 409) == "cannot-extend"
    assert answer.json()["detail"] == "the run has no end, and stop.versions may only grow"


def test_a_new_token_is_listed_by_its_id(shared_server):
    for kind in ("enrolment", "viewer", "operator", "admin"):
        made = shared_server.admin.http.post("/v1/tokens", json={"kind": kind, "name": "ward 3"}).json()
        tokens = shared_server.admin.http.get("/v1/tokens").json()["tokens"]
        assert [token["kind"] for token in tokens if token["id"] == made["id"]] == [kind]
