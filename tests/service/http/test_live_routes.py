"""The live page over HTTP: its headers, its events, who may see them."""

import asyncio
import json
import re
import socket
import time
from contextlib import ExitStack, closing
from importlib import resources

import httpx
import pytest

import offbeat.web
from offbeat.algorithms import FedBuff
from offbeat.service.http import live_routes
from offbeat.service.http.live_routes import EventStream
from offbeat.service.live.run_history import RunHistory
from offbeat.service.live.viewers import MOST_VIEWERS, Viewers
from tests.service.conftest import running
from tests.service.http_client import ONES, check_progress, kind_of, until

EVENTS = "/v1/admin/events"


def watch(server, last_id="", peer=None):
    """Open a stream of events; the caller closes it."""
    http = (peer or server.admin).http
    headers = {"Last-Event-ID": last_id} if last_id else {}
    return http.send(http.build_request("GET", EVENTS, headers=headers), stream=True)


def events_of(answer):
    """Yield the id and the data of each event."""
    last_id = None
    for line in answer.iter_lines():
        if line.startswith("id: "):
            last_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield last_id, json.loads(line.removeprefix("data: "))


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


def test_the_events_say_what_the_status_says(server):
    peer = server.enrol()
    with closing(watch(server)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        events = events_of(answer)
        _, first = next(events)
        assert first["history"]["whole"] is True
        for _ in range(2):
            assert peer.send(peer.check_in(), ONES)["counted"]
        for _, event in events:
            if event["state"]["status"]["version"] == 1:
                break
        status = server.admin.http.get("/v1/status").json()
        shown = event["state"]["status"]
        assert shown.items() <= status.items()
        assert shown["counted"] == 2


def test_a_revoked_token_ends_its_stream(server):
    made = server.admin.http.post("/v1/tokens", json={"kind": "viewer", "name": "wall"}).json()["token"]
    (listed,) = [token for token in server.admin.http.get("/v1/tokens").json()["tokens"] if token["name"] == "wall"]
    with closing(watch(server, peer=server.peer(made))) as answer:
        events = events_of(answer)
        next(events)
        assert server.admin.http.delete(f"/v1/tokens/{listed['id']}").status_code == 204
        server.enrol()  # a change, which it does not see
        assert list(events) == []


def test_a_viewer_does_not_keep_the_server_from_stopping(tmp_path):
    with running(tmp_path / "server") as server:
        answer = watch(server)
        next(events_of(answer))
        began = time.monotonic()
    assert time.monotonic() - began < 8  # the grace for other requests is ten seconds
    answer.close()


def fill(server, megabytes):
    """Note evaluations that make the first event of a viewer so large."""
    history = server.service.engine.run.history
    values = {f"metric_{number}": number / 7 for number in range(1000)}
    for version in range(megabytes * 1_000_000 // len(json.dumps(values))):
        history.note_evaluation(version, values)


def test_viewers_that_read_nothing_hold_up_nobody_and_are_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(live_routes, "_SEND_SECONDS", 2.0)
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=4)) as server, ExitStack() as stack:
        fill(server, megabytes=20)  # more than the system buffers
        host, _, port = server.url.removeprefix("http://").partition(":")
        for _ in range(5):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            head = f"GET {EVENTS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin.token}\r\n\r\n"
            connection.sendall(head.encode())
        until(lambda: len(server.viewers) == 5)
        check_progress(server, [server.enrol()])
        with closing(watch(server)) as answer:
            events = events_of(answer)
            assert len(next(events)[1]["history"]["evaluations"]) > 100
            check_progress(server, [server.enrol()])
            assert any(event["state"]["status"]["counted"] == 2 for _, event in events)

        def are_given_up():
            assert server.peer("oba_wrong").http.get("/v1/status").status_code == 401  # which is an event
            time.sleep(0.2)
            return len(server.viewers) == 0

        until(are_given_up, 60)  # the HTTP server holds an event or two for each


def test_the_places_of_viewers_are_limited(server):
    streams = [watch(server, peer=server.peer(server.admin.token)) for _ in range(MOST_VIEWERS)]
    try:
        assert {stream.status_code for stream in streams} == {200}
        refused = server.admin.http.get(EVENTS)
        assert kind_of(refused, 503) == "busy"
        assert refused.headers["retry-after"]
    finally:
        for stream in streams:
            stream.close()

    def is_admitted():
        with closing(watch(server)) as answer:
            return answer.status_code == 200

    until(is_admitted)


LIVE = resources.files(offbeat.web) / "live"
NAMES = sorted(path.name for path in LIVE.iterdir())


def test_the_page_itself_has_nothing_inline_and_names_files_that_exist():
    page = (LIVE / "index.html").read_text("utf-8")
    assert not re.search(r"<style|\son\w+=|\sstyle=|javascript:|<script>", page)
    assert set(re.findall(r'(?:src|href)="live/([\w.]+)"', page)) <= {*NAMES, "uplot.js", "uplot.css"}
    assert not re.search(r"(?:src|href)=\"(?!live/|data:,)", page)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_scripts_put_text_in_as_text(name):
    script = (LIVE / name).read_text("utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://",
        script.replace("http://www.w3.org/2000/svg", ""),
    )
    assert set(re.findall(r'from "\./([\w.]+)"', script)) <= set(NAMES)
    assert len(script.splitlines()) < 300


async def durable():
    pass


def play(script):
    async def main():
        viewers = Viewers(lambda: {"number": 1}, RunHistory(), lambda: 0.0, durable)
        producing = asyncio.create_task(viewers.produce())
        try:
            await asyncio.wait_for(script(viewers), 20)
        finally:
            producing.cancel()

    asyncio.run(main())


async def never():
    await asyncio.Event().wait()


def stream(viewers):
    return EventStream(viewers, "", lambda: True, "viewer")


def test_a_viewer_that_takes_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(live_routes, "_SEND_SECONDS", 0.05)

    async def script(viewers):
        async def send(message):
            if message["type"] == "http.response.body":
                await never()

        await stream(viewers)({}, never, send)
        assert len(viewers) == 0

    play(script)


@pytest.mark.parametrize("is_stuck", [False, True])
def test_the_end_of_the_server_ends_the_stream(is_stuck):
    async def script(viewers):
        async def send(message):
            if is_stuck and message["type"] == "http.response.body":
                await never()

        serving = asyncio.create_task(stream(viewers)({}, never, send))
        await asyncio.sleep(0.05)
        assert len(viewers) == 1
        viewers.close()
        await serving
        assert len(viewers) == 0

    play(script)
