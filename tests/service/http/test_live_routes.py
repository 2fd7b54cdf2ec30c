"""The live page over HTTP: its headers, its data, who may see them."""

import posixpath
import re
from concurrent.futures import ThreadPoolExecutor
from importlib import resources

import httpx
import pytest

import offbeat.web
from offbeat.algorithms import FedBuff
from offbeat.service.live import snapshots
from tests.service.conftest import running
from tests.service.http_client import ONES, kind_of

DATA = "/v1/admin/live"


def test_the_page_needs_no_token_and_holds_nothing_of_the_run(server):
    server.enrol(name="ward-3")
    answer = httpx.get(f"{server.url}/", verify=False)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "fedbuff" not in answer.text
    assert server.service.engine.run.state.run_id not in answer.text
    assert "ward-3" not in answer.text


@pytest.mark.parametrize("path", ["/", "/live/start.js", "/live/live.css", "/live/uplot.js"])
def test_each_file_has_the_headers_that_keep_it_apart(path, shared_server):
    answer = httpx.get(f"{shared_server.url}{path}", verify=False)
    assert answer.status_code == 200
    expected = {
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",
    }
    assert {name: answer.headers[name] for name in expected} == expected
    policy = answer.headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    again = httpx.get(f"{shared_server.url}{path}", verify=False, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/live/", "/live/none.js", "/live/..%2f__init__.py", "/live/%2e%2e/__init__.py", "/live/a/b"]
)
def test_other_files_are_not_served(path, shared_server):
    assert kind_of(httpx.get(f"{shared_server.url}{path}", verify=False), 404) == "not-found"


def test_the_data_says_what_the_status_says(server):
    peer = server.enrol(name="ward-3")
    first = server.admin.http.get(DATA)
    assert first.headers["cache-control"] == "no-store"
    assert first.json()["history"]["whole"] is True
    assert first.json()["role"] == "admin"
    for _ in range(2):
        assert peer.send(peer.check_in(), ONES)["counted"]
    # Another page of sites asks for a snapshot at once.
    answer = server.admin.http.get(DATA, params={"since": first.json()["id"], "after": 3}).json()
    shown, status = answer["state"]["status"], server.admin.http.get("/v1/status").json()
    assert shown.items() <= status.items()
    assert shown["counted"] == 2
    assert answer["history"]["whole"] is False
    assert [version for _, version in answer["history"]["versions"]] == [1]
    assert answer["sites"] == {"total": 1, "clients": [], "next": None}


def test_tiles_and_table_agree_at_every_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "_SECONDS", 0.0)
    monkeypatch.setattr(snapshots, "_MAX_SHARE", 1e9)  # a snapshot for each question
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=4)) as server:
        peers = [server.enrol() for _ in range(4)]

        def work(peer):
            for _ in range(30):
                peer.send(peer.check_in(), ONES)

        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(work, peer) for peer in peers]
            seen = set()
            while not all(each.done() for each in working):
                answer = server.admin.http.get(DATA).json()
                sites, status = answer["sites"]["clients"], answer["state"]["status"]
                assert sum(site["counted"] for site in sites) == status["counted"]
                assert sum(site["working"] for site in sites) == status["at_work"]
                seen.add(status["counted"])
            for each in working:
                each.result()
    assert len(seen) > 3


def test_a_viewer_with_a_revoked_token_sees_nothing_more(server):
    made = server.admin.http.post("/v1/tokens", json={"kind": "viewer", "name": "wall"}).json()
    http = server.peer(made["token"]).http
    assert http.get(DATA).json()["role"] == "viewer"
    assert server.admin.http.delete(f"/v1/tokens/{made['id']}").status_code == 204
    assert kind_of(http.get(DATA), 401) == "revoked-token"


WEB = resources.files(offbeat.web)
NAMES = sorted(f"{folder}/{path.name}" for folder in ("live", "host") for path in (WEB / folder).iterdir())


@pytest.mark.parametrize("name", ["live/index.html", "host/index.html"])
def test_the_page_itself_has_nothing_inline_and_names_files_that_exist(name):
    page = (WEB / name).read_text("utf-8")
    assert not re.search(r"<style|\son\w+=|\sstyle=|javascript:|<script>", page)
    assert set(re.findall(r'(?:src|href)="(\w+/[\w.]+)"', page)) <= {*NAMES, "live/uplot.js", "live/uplot.css"}
    assert not re.search(r"(?:src|href)=\"(?!live/|host/|data:,)", page)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_scripts_put_text_in_as_text(name):
    script = (WEB / name).read_text("utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://",
        script.replace("http://www.w3.org/2000/svg", ""),
    )
    named = {posixpath.normpath(f"{name}/../{path}") for path in re.findall(r'from "([^"]+)"', script)}
    assert named <= set(NAMES)
    assert len(script.splitlines()) < 300
