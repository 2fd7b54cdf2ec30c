"""Time limits of requests, and bodies that are not read."""

import asyncio
import time
from contextlib import suppress

import pytest

from offbeat.service.refusal import Refusal
from offbeat.service.updates.uploads import Uploads
from tests.service.conftest import running
from tests.service.http_client import kind_of, line


@pytest.mark.parametrize("token", [None, "Bearer obc_" + 43 * "a", "Bearer oba_" + 43 * "a", "Bearer x"])
@pytest.mark.parametrize("path", ["/v1/enrol", "/v1/checkin", "/v1/enrolment-tokens", "/v1/nothing"])
def test_a_body_is_not_read_before_the_token_is_known_to_be_valid(path, token, server):
    with line(server) as opened:
        headers = [f"Authorization: {token}"] if token else []
        began = time.monotonic()
        opened.begin("POST", path, "Content-Type: application/json", *headers, length=1000)
        answer = opened.answer()
        assert kind_of(answer, 401) in ("no-token", "unknown-token")
        assert answer.headers["connection"] == "close"
        assert time.monotonic() - began < 5


def test_a_body_of_a_revoked_client_is_not_read(server):
    peer = server.enrol()
    server.admin.http.delete("/v1/clients/0")
    with line(server, peer) as opened:
        opened.begin("POST", "/v1/checkin", "Content-Type: application/json", length=1000)
        assert kind_of(opened.answer(), 401) == "revoked-token"


def test_a_whole_json_body_has_one_deadline(server, monkeypatch):
    monkeypatch.setattr("offbeat.service.http.body_limit._MAX_SECONDS", 0.5)
    peer = server.enrol()
    with line(server, peer) as opened:
        began = time.monotonic()
        opened.begin("POST", "/v1/checkin", "Content-Type: application/json", length=1000)
        for _ in range(4):
            opened.send(b" ")
            time.sleep(0.2)
        assert kind_of(opened.answer(), 408) == "too-slow"
        assert time.monotonic() - began < 5


def test_a_whole_head_has_one_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.service.server.http_server._IDLE_MILLISECONDS", 600)
    with running(tmp_path / "server") as server, line(server) as opened:
        began = time.monotonic()
        opened.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with suppress(ConnectionError):
            while time.monotonic() - began < 5:
                time.sleep(0.1)
                opened.send(b"a: b\r\n")
        assert 0.5 < time.monotonic() - began < 4


def test_a_whole_upload_has_one_deadline(tmp_path, monkeypatch):
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
    asyncio.run(ask(uploads.write(0, 0, 0, 10, slow())))
    assert uploads.offset(0, 0) == 2


MALFORMED = [b"-1\r\n{}\r\n0\r\n\r\n", b"zz\r\n{}\r\n", b"2\r\n{}XX0\r\n\r\n", b"ffffffffffffffffff\r\n{}"]


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_chunks_are_refused(body, server):
    with line(server, server.enrol()) as opened:
        opened.begin("POST", "/v1/checkin", "Content-Type: application/json", "Transfer-Encoding: chunked")
        opened.send(body)
        answer = opened.answer()
        assert kind_of(answer, 400) == "malformed-request"
        assert "chunks" in answer.json()["detail"]
        assert answer.headers["connection"] == "close"


def test_a_client_whose_enrolment_was_not_answered_may_ask_again_with_a_used_up_token(tmp_path):
    own = "obc_" + 43 * "b"
    with running(tmp_path / "server") as server:
        once = server.admin.http.post("/v1/enrolment-tokens", json={"uses": 1}).json()["token"]
        first = server.peer(once).http.post("/v1/enrol", json={"token": own}).json()
        assert server.peer(once).http.post("/v1/enrol", json={"token": own}).json() == first
        assert kind_of(server.peer(once).http.post("/v1/enrol", json={}), 401) == "revoked-token"
    with running(tmp_path / "server") as server:
        assert server.peer(once).http.post("/v1/enrol", json={"token": own}).json() == first
        assert kind_of(server.peer(once).http.post("/v1/enrol", json={}), 401) == "revoked-token"
