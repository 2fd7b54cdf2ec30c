"""Several runs on one server, as sites and operators use them."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import torch

from offbeat.service.audit.verification import entries, verify
from tests.service.conftest import LENGTH
from tests.service.hosting.conftest import hosting
from tests.service.http_client import kind_of, until


def test_a_site_enrols_once_and_works_in_each_run_in_turn(server):
    server.create("one", algorithm="fedasync")
    server.create("two", algorithm="fedasync")
    site = server.enrol("ward 3")
    assert Counter(site.work() for _ in range(6)) == {"one": 3, "two": 3}
    runs = server.runs()
    assert {name: (run["counted"], run["version"], run["enrolled"]) for name, run in runs.items()} == {
        "one": (3, 3, 1),
        "two": (3, 3, 1),
    }
    status = server.peer(server.token("viewer"), "two").http.get("/v1/status").json()
    assert (status["algorithm"], status["counted"]) == ("fedasync", 3)


def test_runs_admit_sites_by_label_and_by_name(server):
    server.create("gpu", algorithm="fedasync", labels=["gpu", "eu"])
    server.create("named", algorithm="fedasync", names=["ward 3"])
    both, one, named = server.enrol("", "gpu", "eu"), server.enrol("", "gpu"), server.enrol("ward 3")
    assert both.find_work()["run"] == "gpu"
    assert one.find_work() == {"run": None, "client": None, "finished": False}
    assert named.find_work()["run"] == "named"
    assert server.admin.http.post(f"/v1/sites/{one.number}/labels", json={"labels": ["eu", "gpu"]}).status_code == 204
    assert one.find_work()["run"] == "gpu"
    listed = server.admin.http.get("/v1/sites").json()["sites"]
    assert [(site["name"], site["labels"], site["runs"]) for site in listed] == [
        ("", ["eu", "gpu"], ["gpu"]),
        ("", ["eu", "gpu"], ["gpu"]),
        ("ward 3", [], ["named"]),
    ]


def test_a_site_that_waits_gets_work_of_a_run_that_begins(server):
    site = server.enrol("")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(site.find_work, 20.0)
        time.sleep(0.3)
        server.create("later", algorithm="fedasync")
        assert found.result(10)["run"] == "later"


def test_a_site_that_waits_gets_work_of_the_first_run_that_has_some(server):
    for name in ("one", "two"):
        server.create(name, algorithm="one at a time")
    first, second, third = (server.enrol("") for _ in range(3))
    assert {first.find_work()["run"], second.find_work()["run"]} == {"one", "two"}
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(third.find_work, 20.0)
        until(lambda: [run["waiting"] for run in server.runs().values()] == [1, 1])
        name = second.find_work()["run"]  # its open visit
        assert second.at(name).send(second.at(name).check_in(), torch.ones(LENGTH))["counted"]
        assert found.result(10)["run"] == name
    until(lambda: [run["waiting"] for run in server.runs().values()] == [0, 0])


def test_a_run_that_is_extended_is_not_over(server):
    server.create("one", algorithm="one at a time", versions=1)
    first, second = server.enrol(""), server.enrol("")
    assert first.find_work()["run"] == "one"
    assert second.find_work() == {"run": None, "client": None, "finished": False}
    assert first.work() == "one"
    assert second.find_work(20.0)["finished"]
    until(lambda: server.service.home.state.runs["one"].is_over)
    assert server.peer(server.admin.token, "one").http.post("/v1/admin/extend", json={"versions": 2}).is_success
    assert first.find_work()["run"] == "one"
    assert not second.find_work()["finished"]


def test_a_full_run_takes_no_other_site(server):
    server.create("small", algorithm="fedasync", clients=1)
    assert server.enrol("").find_work()["run"] == "small"
    assert server.enrol("").find_work()["run"] is None


def test_a_run_that_a_site_cannot_work_for_is_left_out(server):
    server.create("one", algorithm="fedasync")
    server.create("two", algorithm="fedasync")
    site = server.enrol("")
    assert {site.find_work(without=("one",))["run"] for _ in range(3)} == {"two"}


def test_a_run_that_needs_examples_is_named_so_that_the_site_declares_them(server):
    server.create("weighs", algorithm="fedasync", waits_for_examples=True, clients=1)
    site = server.enrol("")
    assert site.find_work()["run"] == "weighs"
    assert kind_of(site.at("weighs").http.post("/v1/checkin", json={}), 422) == "no-examples"
    assert site.at("weighs").http.post("/v1/examples", json={"examples": 10}).status_code == 200
    assert site.work() == "weighs"


def test_a_revoked_site_ends_in_all_runs_also_in_one_that_was_not_open(tmp_path):
    with hosting(tmp_path / "server") as server:
        for name in ("one", "two"):
            server.create(name, algorithm="fedavg")
        site, other = server.enrol(""), server.enrol("")
        for each in (site, other):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(each.find_work, 0.5).result(10)
        assert [run["enrolled"] for run in server.runs().values()] == [2, 2]
        assert server.admin.http.delete(f"/v1/sites/{site.number}").status_code == 204
        assert kind_of(site.root.http.post("/v1/work", json={}), 401) == "revoked-token"
        assert kind_of(site.at("one").http.post("/v1/checkin", json={}), 401) == "revoked-token"
        for name in ("one", "two"):
            clients = server.peer(server.admin.token, name).http.get("/v1/admin/clients").json()["clients"]
            assert [client["revoked"] is not None for client in clients] == [True, False]
        # As after a kill between the server's own row and the runs'.
        server.in_loop(lambda: server.service.accounts.revoke(other.number))
    with hosting(tmp_path / "server") as server:
        for name in ("one", "two"):
            clients = server.peer(server.admin.token, name).http.get("/v1/admin/clients").json()["clients"]
            assert [client["revoked"] is not None for client in clients] == [True, True]


def test_all_that_was_acknowledged_is_there_after_a_restart(tmp_path):
    with hosting(tmp_path / "server") as server:
        server.create("one", algorithm="fedbuff")
        server.create("two", algorithm="fedasync", labels=["gpu"])
        site, token = server.enrol("ward 3", "gpu"), server.token("viewer", name="screen")
        worked = Counter(site.work() for _ in range(5))
        before = server.runs()
    with hosting(tmp_path / "server") as server:
        now = server.runs()
        assert {name: run["counted"] for name, run in now.items()} == dict(worked)
        assert {name: run["version"] for name, run in now.items()} == {
            name: run["version"] for name, run in before.items()
        }
        assert server.peer(token).http.get("/v1/status").status_code == 200
        again = type(site)(server, {"has_runs": True, "client": site.number, "token": site.token})
        assert again.work() is not None
        (listed,) = server.admin.http.get("/v1/sites").json()["sites"]
        assert (listed["labels"], listed["runs"]) == (["gpu"], ["one", "two"])
    verify(tmp_path / "server")
    kinds = [entry["kind"] for entry in entries(tmp_path / "server")]
    assert kinds.count("run created") == 2
    assert [entry["run"] for entry in entries(tmp_path / "server") if entry["kind"] == "run created"] == ["one", "two"]


def test_a_run_that_is_over_is_opened_again_on_request_and_may_be_extended(tmp_path):
    with hosting(tmp_path / "server") as server:
        server.create("short", algorithm="fedasync", versions=1)
        site = server.enrol("")
        assert site.work() == "short"
        assert site.find_work() == {"run": None, "client": None, "finished": True}
        until(lambda: server.service.home.state.runs["short"].is_over)
    with hosting(tmp_path / "server") as server:
        assert server.runs()["short"]["state"] == "over"
        assert not server.service.runs.is_open("short")
        run = server.peer(server.admin.token, "short").http
        assert run.get("/v1/status").json()["version"] == 1
        assert run.get("/v1/admin/model").status_code == 200
        assert run.post("/v1/admin/extend", json={"versions": 2}).status_code == 200
        again = type(site)(server, {"has_runs": True, "client": site.number, "token": site.token})
        assert again.work() == "short"
        assert run.post("/v1/admin/extend", json={"versions": 9}).status_code == 200
        assert run.post("/v1/admin/end").json() == {"stop_versions": 2, "finished": True}
        assert again.find_work()["run"] is None


def test_a_run_that_fails_leaves_the_others_alone(server):
    server.create("good", algorithm="fedasync")
    server.create("bad", algorithm="fedasync")
    site = server.enrol("")
    server.fail("bad")
    assert server.runs()["bad"]["problem"] == "ValueError: planted"
    assert {site.work() for _ in range(3)} == {"good"}
    assert kind_of(server.peer(server.admin.token, "bad").http.get("/v1/status"), 503) == "stopping"


def test_a_wrong_file_begins_no_run(server):
    http = server.admin.http
    assert kind_of(http.post("/v1/runs", json={"name": "x", "file": '{"algorithm": "no"}'}), 400) == "malformed-request"
    assert server.runs() == {}
    server.create("x", algorithm="fedasync")
    assert kind_of(http.post("/v1/runs", json={"name": "x", "file": '{"algorithm": "fedavg"}'}), 409) == "run-exists"
    for name in ("", "../x", "X", "a" * 64, "a/b", "-a"):
        body = {"name": name, "file": '{"algorithm": "fedavg"}'}
        assert kind_of(http.post("/v1/runs", json=body), 400) == "malformed-request"


def test_an_update_of_one_run_never_reaches_another(server):
    server.create("one", algorithm="fedasync")
    server.create("two", algorithm="fedasync")
    site = server.enrol("")
    site.find_work(without=("two",))
    site.find_work(without=("one",))
    visits = {run: site.at(run).check_in() for run in ("one", "two")}
    assert site.at("one").send(visits["one"], torch.ones(LENGTH))["counted"]
    # The other run has the same number of a visit; it gets another digest.
    assert site.at("two").send(visits["two"], torch.full((LENGTH,), 2.0))["counted"]
    assert {name: run["counted"] for name, run in server.runs().items()} == {"one": 1, "two": 1}


def test_a_site_that_is_forgotten_is_in_no_file_of_the_server_and_its_runs(tmp_path):
    with hosting(tmp_path / "server") as server:
        for name in ("one", "short"):
            server.create(name, algorithm="fedasync", **({"versions": 1} if name == "short" else {}))
        server.create("other", algorithm="fedasync", labels=["nothing"])
        site = server.enrol("Ward of Doctor Xylophone", "quixotic-label")
        assert {site.work(), site.work()} == {"one", "short"}
        server.admin.http.post(f"/v1/sites/{site.number}/rename", json={"name": "Xylophone 2"})
        answer = server.admin.http.delete(f"/v1/sites/{site.number}/data")
        assert answer.status_code == 200
        assert {"Run one", "Run short"} <= {line.partition(":")[0] for line in answer.json()["deleted"]}
        assert kind_of(site.root.http.post("/v1/work", json={}), 401) == "unknown-token"
        assert server.admin.http.get("/v1/sites").json()["sites"] == []
        assert server.admin.http.delete(f"/v1/sites/{site.number}/data").status_code == 200  # again
        http = server.admin.http
        assert kind_of(http.post(f"/v1/sites/{site.number}/labels", json={"labels": ["a"]}), 404) == "no-such-client"
        fresh = server.enrol("new")
        assert fresh.number == site.number + 1
        assert fresh.work() == "one"
    files = [path for path in (tmp_path / "server").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert b"Xylophone" not in path.read_bytes(), path
        assert b"quixotic" not in path.read_bytes() or path.parent == tmp_path / "server", path
    with hosting(tmp_path / "server") as server:
        assert [site["name"] for site in server.admin.http.get("/v1/sites").json()["sites"]] == ["new"]


def test_the_deletion_of_a_site_goes_on_after_a_kill(tmp_path):
    with hosting(tmp_path / "server") as server:
        server.create("one", algorithm="fedasync")
        site = server.enrol("Xylophone")
        assert site.work() == "one"
        server.in_loop(lambda: server.service.accounts.forget(site.number))  # as far as a kill may let it come
    with hosting(tmp_path / "server") as server:
        sites = server.service.accounts.sites
        until(lambda: sites[site.number].forgotten == "done")
    for path in (tmp_path / "server").rglob("*"):
        assert not path.is_file() or b"Xylophone" not in path.read_bytes(), path


def test_a_run_has_a_quota_of_requests_and_the_others_have_theirs(server):
    server.create("limited", algorithm="fedasync", requests_a_second=0.001)
    server.create("free", algorithm="fedasync")
    limited, free = (server.peer(server.admin.token, name).http for name in ("limited", "free"))
    assert limited.get("/v1/status").status_code == 200
    assert kind_of(limited.get("/v1/status"), 429) == "too-many-requests"
    assert [free.get("/v1/status").status_code for _ in range(3)] == [200] * 3
    assert server.admin.http.get("/v1/status").status_code == 200
