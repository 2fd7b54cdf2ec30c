"""The page of all runs over HTTP: its files, its data, and the metrics."""

import httpx
import pytest

from offbeat.service.http.live_routes import HEADERS
from tests.service.http_client import kind_of

DATA = "/v1/admin/live"


@pytest.mark.parametrize("path", ["/", "/live/session.js", "/live/live.css", "/host/start.js", "/runs/any/"])
def test_each_file_has_the_headers_that_keep_it_apart_and_needs_no_token(path, server):
    server.create("retina", algorithm="fedasync")
    answer = httpx.get(f"{server.url}{path}")
    assert answer.status_code == 200
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "retina" not in answer.text
    again = httpx.get(f"{server.url}{path}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_pages_of_runs_link_to_that_of_all_and_no_other_files_are_served(server):
    assert '<a id="all-runs" href="../../">' in httpx.get(f"{server.url}/runs/any/").text
    for path in ("/host/none.js", "/host/..%2flive%2fstart.js", "/host/", "/live/host/start.js"):
        assert kind_of(httpx.get(f"{server.url}{path}"), 404) == "not-found"


def test_one_answer_has_the_runs_and_a_page_of_sites(server):
    server.create("retina", algorithm="fedasync")
    sites = [server.enrol(f"ward {number}") for number in range(51)]
    assert sites[0].work() == "retina"
    first = server.peer(server.token("viewer")).http.get(DATA)
    assert first.headers["cache-control"] == "no-store"
    data = first.json()
    assert data["role"] == "viewer"
    assert data["state"] == server.admin.http.get("/v1/status").json()
    assert data["state"]["runs"][0]["counted"] == 1
    assert data["sites"] == server.admin.http.get("/v1/sites?limit=50").json()
    assert data["sites"]["sites"][0]["runs"] == ["retina"]
    second = server.admin.http.get(DATA, params={"after": data["sites"]["next"]}).json()
    assert [site["name"] for site in second["sites"]["sites"]] == ["ward 50"]
    assert kind_of(sites[0].root.http.get(DATA), 403) == "foreign-token"
    assert kind_of(httpx.get(f"{server.url}{DATA}"), 401) == "no-token"


def test_the_metrics_count_runs_by_state_sites_and_refusals(server):
    for name in ("one", "two", "bad"):
        server.create(name, algorithm="fedasync")
    assert server.peer(server.admin.token, "two").http.post("/v1/admin/pause").status_code == 200
    server.fail("bad")
    server.enrol("")
    assert server.admin.http.delete(f"/v1/sites/{server.enrol('').number}").status_code == 204
    assert kind_of(server.peer("oba_wrong").http.get("/v1/status"), 401) == "unknown-token"
    answer = server.peer(server.token("viewer")).http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    for state, number in (("at work", 1), ("paused", 1), ("failed", 1), ("over", 0), ("starting", 0)):
        assert f'offbeat_runs{{state="{state}"}} {number}.0' in lines
    assert 'offbeat_sites{revoked="no"} 1.0' in lines
    assert 'offbeat_sites{revoked="yes"} 1.0' in lines
    assert 'offbeat_refusals_total{kind="unknown-token"} 1.0' in lines
    assert "offbeat_version 0.0" in server.peer(server.admin.token, "one").http.get("/metrics").text.splitlines()
