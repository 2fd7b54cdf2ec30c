"""Time limits of requests, and bodies that are not read."""

import asyncio
import hashlib
import time
from contextlib import ExitStack, suppress

import pytest

from offbeat.service.refusal import Refusal
from offbeat.service.updates.uploads import Uploads
from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, kind_of, line

JSON = "Content-Type: application/json"


@pytest.mark.parametrize("token", [None, "Bearer obc_" + 43 * "a", "Bearer x"])
@pytest.mark.parametrize("path", ["/v1/enrol", "/v1/checkin", "/v1/nothing"])
def test_a_body_is_not_read_before_the_token_is_known_to_be_valid(path, token, shared_server):
    with line(shared_server) as opened:
        headers = [f"Authorization: {token}"] if token else []
        began = time.monotonic()
        opened.begin("POST", path, JSON, *headers, length=1000)
        answer = opened.answer()
        assert kind_of(answer, 401) in ("no-token", "unknown-token")
        assert answer.headers["connection"] == "close"
        assert time.monotonic() - began < 5


def test_the_connection_closes_after_an_answer_that_comes_before_the_body(shared_server):
    peer = shared_server.enrol()
    visit = peer.check_in()
    long = bytes(3_000_000)
    for body in (long, iter([long])):
        assert peer.http.put("/v1/uploads/0", content=body).headers["connection"] == "close"
        assert "connection" not in peer.http.put("/v1/uploads/0", content=b"").headers
        assert "connection" not in peer.put(visit, body_of(ONES), sha256="0" * 64).headers
    assert peer.http.post("/v1/checkin", content=long).headers["connection"] == "close"
    assert "connection" not in peer.http.get("/v1/models/0").headers


def test_a_json_body_has_one_deadline(shared_server, monkeypatch):
    monkeypatch.setattr("offbeat.service.http.request_limits._MAX_SECONDS", 0.5)
    with line(shared_server, shared_server.enrol()) as opened:
        began = time.monotonic()
        opened.begin("POST", "/v1/checkin", JSON, length=1000)
        for _ in range(4):
            opened.send(b" ")
            time.sleep(0.2)
        assert kind_of(opened.answer(), 408) == "too-slow"
        assert time.monotonic() - began < 5


def test_a_head_has_one_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat_core.serving.http_server._IDLE_MILLISECONDS", 600)
    with running(tmp_path / "server") as server, line(server) as opened:
        began = time.monotonic()
        opened.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with suppress(ConnectionError):
            while time.monotonic() - began < 5:
                time.sleep(0.1)
                opened.send(b"a: b\r\n")
        assert 0.5 < time.monotonic() - began < 4


def test_an_upload_has_one_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.service.updates.uploads._SLOWEST", 50)
    for name in ("updates", "partial"):
        (tmp_path / name).mkdir()
    uploads = Uploads(tmp_path, budget=100, patience_seconds=0.3)

    async def slow():
        for _ in range(10):
            await asyncio.sleep(0.2)
            yield b"a"

    async def ask(work):
        with pytest.raises(Refusal) as caught:
            await work
        assert caught.value.kind == "too-slow"
        assert "slower than 50 bytes a second" in caught.value.detail

    asyncio.run(ask(uploads.read(0, 10, slow())))
    asyncio.run(ask(uploads.write(0, 0, 0, 10, slow(), lambda _: None, hashlib.sha256)))
    assert uploads.offset(0, 0) == 2


MALFORMED = [b"-1\r\n{}\r\n0\r\n\r\n", b"zz\r\n{}\r\n", b"2\r\n{}XX0\r\n\r\n", b"ffffffffffffffffff\r\n{}"]


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_chunks_are_refused(body, shared_server):
    with line(shared_server, shared_server.enrol()) as opened:
        opened.begin("POST", "/v1/checkin", JSON, "Transfer-Encoding: chunked")
        opened.send(body)
        answer = opened.answer()
        assert kind_of(answer, 400) == "malformed-request"
        assert "chunks" in answer.json()["detail"]
        assert answer.headers["connection"] == "close"


PLACES = 40


@pytest.fixture
def few(tmp_path):
    """A server that accepts 40 connections of one address, and so ten requests of one token at once."""
    with running(tmp_path / "server", connections_per_address=PLACES) as server:
        yield server


def hold_bodies(opened, peer):
    opened.begin("POST", "/v1/checkin", JSON, length=1000)


def hold_idle_connections(opened, peer):
    opened.begin("GET", "/v1/models/latest")
    assert opened.answer().status_code == 307


@pytest.mark.parametrize("hold", [hold_bodies, hold_idle_connections])
def test_a_client_that_holds_connections_keeps_no_newcomer_out(few, hold):
    peer = few.enrol()
    peer.check_in()
    with ExitStack() as stack:
        for _ in range(2 * PLACES):
            hold(stack.enter_context(line(few, peer)), peer)
        with line(few, few.peer(few.enrolment_token)) as newcomer:
            time.sleep(1.0)  # connections are counted four times a second
            newcomer.begin("POST", "/v1/enrol", JSON, length=2)
            newcomer.send(b"{}")
            assert newcomer.answer().status_code == 201


def test_a_request_above_the_limit_is_refused_until_another_ends(few):
    peer = few.enrol()
    with ExitStack() as stack:
        under_way = [stack.enter_context(line(few, peer)) for _ in range(10)]
        for opened in under_way:
            hold_bodies(opened, peer)
        time.sleep(0.3)
        answer = peer.http.post("/v1/checkin", json={})
        assert kind_of(answer, 429) == "too-many-requests"
        assert answer.headers["Retry-After"] == "1"
        assert few.enrol().http.post("/v1/checkin", json={}).status_code == 200
        under_way[0].send(b"{}".ljust(1000))
        assert under_way[0].answer().status_code == 200
        assert peer.http.post("/v1/checkin", json={}).status_code == 200
