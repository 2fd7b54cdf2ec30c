"""Fronts in processes of their own for several runs."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch

from tests.service.conftest import LENGTH
from tests.service.hosting.conftest import hosting
from tests.service.http_client import until


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with hosting(tmp_path_factory.mktemp("host") / "server", fronts=2) as server:
        yield server


def _answers(http):
    try:
        return http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_sites_work_in_each_run_through_any_front(host):
    for name in ("one", "two"):
        host.create(name, algorithm="fedasync")
    site = host.enrol("ward 3")
    assert {site.work() for _ in range(4)} == {"one", "two"}
    visit = site.at("one").check_in()
    assert site.at("one").http.get(f"/v1/models/{visit['version']}").status_code == 200
    assert site.at("one").send(visit, torch.ones(LENGTH))["counted"]
    assert {name: run["counted"] for name, run in host.runs().items()} == {"one": 3, "two": 2}
    status = host.peer(host.admin.token, "two").http.get("/v1/status").json()
    assert (status["counted"], status["algorithm"]) == (2, "fedasync")


def test_a_run_begins_and_a_waiting_site_is_told_through_a_front(host):
    site = host.enrol("", "late")
    host.create("full", algorithm="one at a time", labels=["nobody"])
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(site.find_work, 20.0, ("one", "two"))
        time.sleep(0.5)
        host.create("later", algorithm="fedasync", labels=["late"])
        assert found.result(15)["run"] == "later"
    assert site.work() == "later"


def test_a_large_update_is_received_by_a_front_of_its_run(host):
    host.create("large", algorithm="fedasync", length=40_000, labels=["large"])  # 160 kB, more than a row takes
    site = host.enrol("", "large")
    site.find_work(without=("one", "two"))
    visit = site.at("large").check_in()
    assert site.at("large").send(visit, torch.ones(40_000))["counted"]
    model = site.at("large").http.get("/v1/models/latest", follow_redirects=True)
    assert (model.status_code, len(model.content) > 160_000) == (200, True)
    folder = host.folder / "runs" / "large"
    assert sorted(path.name for path in folder.glob("fronts/*")) != []
    assert not list(host.folder.glob("fronts/*/updates/*"))


def test_a_site_that_is_not_admitted_and_a_run_that_is_not_there_look_the_same(host):
    host.create("secret", algorithm="fedasync", labels=["trusted"])
    site, stranger = host.enrol(""), "obc_" + "A" * 43
    requests = [
        ("POST", "/v1/checkin", b"{}"),
        ("POST", "/v1/checkin", b"no"),
        ("GET", "/v1/models/0", None),
        ("GET", "/v1/models/x", None),
        ("PUT", "/v1/uploads/0", b"abc"),
        ("GET", "/v1/uploads/0", None),
        ("POST", "/v1/visits/0/heartbeat", b""),
        ("GET", "/v1/status", None),
        ("GET", "/v1/nothing", None),
        ("DELETE", "/v1/checkin", None),
    ]
    for token in (site.token, stranger, None):
        for method, path, body in requests:
            answers = [host.peer(token, run).http.request(method, path, content=body) for run in ("secret", "nothing")]
            assert answers[0].status_code == answers[1].status_code, (token, method, path, answers[0].text)
            texts = [answer.text.replace("secret", "X").replace("nothing", "X") for answer in answers]
            assert texts[0] == texts[1], (token, method, path)
            assert answers[0].status_code >= 400


def test_a_front_that_is_killed_comes_back_and_loses_nothing(tmp_path):
    with hosting(tmp_path / "server", fronts=1) as server:
        server.create("one", algorithm="fedasync")
        site = server.enrol("")
        assert site.work() == "one"
        (child,) = server.fronts.children
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: server.fronts.children[0].pid != child.pid, 30)
        fresh = server.peer(site.token)
        until(lambda: _answers(fresh.http), 60)
        again = type(site)(server, {"has_runs": True, "client": site.number, "token": site.token})
        assert again.work() == "one"
        assert server.service.status().runs[0].counted == 2


def test_a_finished_run_is_not_opened_for_a_site_of_another_one(tmp_path):
    with hosting(tmp_path / "server", fronts=1) as server:
        server.create("short", algorithm="fedasync", versions=1, labels=["trusted"])
        site, other = server.enrol("", "trusted"), server.enrol("")
        assert site.work() == "short"
        until(lambda: server.service.home.state.runs["short"].is_over)
    with hosting(tmp_path / "server", fronts=1) as server:
        http = server.peer(other.token, "short").http
        assert http.post("/v1/checkin", json={}).json()["kind"] == "no-such-run"
        assert not server.service.runs.is_open("short")
        assert server.peer(site.token, "short").http.post("/v1/checkin", json={}).json()["finished"]
        assert server.service.runs.is_open("short")
