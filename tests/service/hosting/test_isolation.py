"""Nothing of one run is visible to the sites of another, by any route."""

import pytest

from tests.service.hosting.conftest import hosting
from tests.service.http_client import kind_of


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with hosting(tmp_path_factory.mktemp("host") / "server") as server:
        server.create("open", algorithm="fedasync")
        server.create("secret", algorithm="fedasync", labels=["trusted"])
        yield server


@pytest.fixture(scope="module")
def paths(host):
    """Every route of a run that needs a token."""
    document = host.peer(host.admin.token, "open").http.get("/openapi.json").json()
    found = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    found = [(method, path) for method, path in found if path.startswith("/v1/") or path == "/metrics"]
    assert len(found) > 20
    return [
        (method, path.replace("{number}", "0").replace("{version}", "0").replace("{token_id}", "0"))
        for method, path in found
    ]


def test_a_site_of_another_run_learns_nothing_not_even_that_a_run_is_there(host, paths):
    site = host.enrol("")
    assert site.find_work()["run"] == "open"
    there, missing = site.at("secret").http, site.at("nothing").http
    for method, path in paths:
        known = there.request(method, path, content=None if method in ("GET", "DELETE") else b"{}")
        unknown = missing.request(method, path, content=None if method in ("GET", "DELETE") else b"{}")
        texts = [answer.text.replace("secret", "X").replace("nothing", "X") for answer in (known, unknown)]
        assert known.status_code == unknown.status_code, (method, path, *texts)
        assert texts[0] == texts[1], (method, path)


def test_a_stranger_learns_nothing_of_a_run(host, paths):
    for token in (None, "obc_" + "A" * 43):
        there, missing = (host.peer(token, run).http for run in ("secret", "nothing"))
        for method, path in [*paths, ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/"), ("GET", "/live/page.js")]:
            known, unknown = (http.request(method, path) for http in (there, missing))
            assert known.status_code == unknown.status_code, (method, path)
            assert known.text == unknown.text, (method, path)
            assert known.status_code in (200, 401, 404), (method, path)


def test_a_token_of_one_run_is_good_for_nothing_else(host):
    made = host.peer(host.admin.token, "open").http.post("/v1/tokens", json={"kind": "admin"}).json()["token"]
    assert host.peer(made, "open").http.get("/v1/status").status_code == 200
    assert kind_of(host.peer(made, "secret").http.get("/v1/status"), 401) == "unknown-token"
    assert kind_of(host.peer(made).http.get("/v1/status"), 401) == "unknown-token"
    assert kind_of(host.peer(made).http.post("/v1/runs", json={"name": "x", "file": "{}"}), 401) == "unknown-token"


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_a_role_at_the_server_is_that_role_in_each_run(role, host):
    token = host.token(role)
    may = ["viewer", "operator", "admin"].index(role)
    at_run, at_server = host.peer(token, "secret").http, host.peer(token).http
    requests = [
        (at_server, "GET", "/v1/status", None, 0),
        (at_server, "GET", "/v1/sites", None, 0),
        (at_server, "GET", "/v1/admin/live", None, 0),
        (at_server, "GET", "/metrics", None, 0),
        (at_server, "POST", "/v1/sites/0/rename", {"name": "a"}, 1),
        (at_server, "POST", "/v1/sites/0/labels", {"labels": []}, 1),
        (at_server, "DELETE", "/v1/sites/99", None, 1),
        (at_server, "GET", "/v1/tokens", None, 2),
        (at_server, "POST", "/v1/tokens", {"kind": "viewer"}, 2),
        (at_server, "DELETE", "/v1/tokens/0", None, 2),
        (at_server, "POST", "/v1/runs", {"name": "A", "file": ""}, 2),
        (at_run, "GET", "/v1/status", None, 0),
        (at_run, "GET", "/v1/admin/live", None, 0),
        (at_run, "POST", "/v1/admin/pause", {}, 1),
        (at_run, "POST", "/v1/admin/resume", {}, 1),
        (at_run, "GET", "/v1/tokens", None, 2),
    ]
    for http, method, path, body, needed in requests:
        answer = http.request(method, path, json=body)
        if may < needed:
            assert kind_of(answer, 403) == "foreign-token", (method, path)
        else:
            assert answer.status_code not in (401, 403), (method, path, answer.text)


def test_a_site_may_do_nothing_at_the_server_but_its_own(host):
    site = host.enrol("").root.http
    for method, path in [*_host_routes(host), ("GET", "/v1/admin/live")]:
        if path in ("/v1/work", "/v1/token", "/v1/enrol", "/healthz", "/readyz"):
            continue
        body = {"name": "abc", "file": "", "kind": "viewer", "labels": []} if method == "POST" else None
        answer = site.request(method, path.replace("{number}", "0").replace("{token_id}", "0"), json=body)
        assert answer.status_code in (400, 403), (method, path, answer.text)


def _host_routes(host):
    document = host.admin.http.get("/openapi.json").json()
    return [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
