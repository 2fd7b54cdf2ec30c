"""Malformed and hostile requests: they are refused, and change nothing."""

import asyncio
import http.client
import json
import time
from functools import partial
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect

from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.http.error_answers import error_answer
from offbeat.service.http.http_app import RequestTimer
from offbeat.service.http.typed_routes import TypedRoutes
from offbeat.service.refusal import Refusal
from tests.service.conftest import body_of
from tests.service.http_client import ONES, ask, begin_upload, check_progress, kind_of, line, snapshot


@pytest.fixture
def listener(shared_server):
    return shared_server


@pytest.fixture
def peer(listener):
    """A client that has work before, and does it after."""
    made = listener.enrol()
    visit = made.check_in()
    before = snapshot(listener)
    yield made
    assert snapshot(listener) == before
    assert made.send(visit, ONES)["counted"]


@pytest.fixture
def head(peer):
    """The header of the client's update."""
    return f"Offbeat-Update: {json.dumps(peer.head(peer.check_in(), body_of(ONES)))}"


def test_a_chunked_body_with_a_length_is_not_read_beyond_it(listener, peer, head):
    megabyte = b"100000\r\n" + bytes(2**20) + b"\r\n"
    for order in (1, -1):
        headers = ["Content-Length: 104", "Transfer-Encoding: chunked"][::order]
        sent = 0
        with line(listener, peer) as opened:
            opened.begin("PUT", "/v1/uploads/0", head, *headers)
            try:
                while sent < 100:
                    opened.send(megabyte)
                    sent += 1
            except ConnectionError:
                pass
        assert sent < 32


def test_the_body_of_a_refused_request_is_not_read_as_another_request(listener, peer):
    number = len(listener.service.accounts) - 1
    token = listener.admin.token
    inner = f"DELETE /v1/clients/{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    with line(listener) as opened:
        opened.begin("PUT", "/v1/uploads/0", length=len(inner))
        opened.send(inner.encode())
        assert kind_of(opened.answer(), 401) == "no-token"
        opened.socket.settimeout(0.3)
        try:
            rest = opened.socket.recv(1000)
        except (TimeoutError, ConnectionError):
            rest = b""
        assert rest == b""


def test_pipelined_requests_are_answered_in_order(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body)
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body)
        opened.begin("GET", "/v1/uploads/0")
        answers = [opened.answer() for _ in range(3)]
    assert answers[0].json() == answers[1].json()
    assert answers[2].json()["receipt"] == answers[0].json()["receipt"]
    assert server.service.engine.coordinator.statistics.counted == 1


@pytest.mark.parametrize("length", ["-1", "+5", "abc", "9" * 30, "5, 5", "3\r\nContent-Length: 104"])
def test_a_malformed_length_is_refused(length, listener, peer, head):
    assert ask(listener, peer, "PUT", "/v1/uploads/0", head, f"Content-Length: {length}").status_code == 400


@pytest.mark.parametrize("offset", ["-1", "1", "103", "104", "105", "9" * 18, "9" * 30, "9" * 5000, "x", "", "0.5"])
def test_a_wrong_offset_changes_nothing(offset, listener, peer, head):
    body = body_of(ONES)
    rest = body[int(offset) :] if offset in ("103", "104") else body
    length = f"Content-Length: {len(rest)}"
    with line(listener, peer) as opened:
        opened.begin("PUT", "/v1/uploads/0", head, f"Upload-Offset: {offset}", length)
        opened.send(rest)
        assert opened.answer().status_code in (400, 409, 413)


@pytest.mark.parametrize(
    "token",
    [
        "Bearer \xe9",
        "Bearer obc_" + "\xe9" * 43,
        "Bearer " + "x" * 50_000,
        "Basic x",
        "\xff",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("path", ["/v1/checkin", "/v1/enrol", "/v1/tokens"])
def test_a_malformed_token_is_unknown(token, path, listener):
    with line(listener) as opened:
        opened.begin("POST", path, f"Authorization: {token}", "Content-Type: application/json", length=2)
        opened.send(b"{}")
        assert kind_of(opened.answer(), 401) in ("unknown-token", "no-token")


@pytest.mark.parametrize(
    "body",
    [
        b'{"wait_seconds": NaN}',
        b'{"wait_seconds": 1' + b"0" * 400 + b"}",
        b'{"wait_seconds": 1' + b"0" * 5000 + b"}",
        b'{"wait_seconds": true}',
        b'{"\\ud800": 1}',
        b'{"a\\nb\\r\\u2028": 1}',
        b'{"wait_seconds": 61}',
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b"\xff\xfe{",
        b"null",
        b'{"wait_seconds": 0, "wait_seconds": "x"}',
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_hostile_json_is_refused_in_one_line(body, listener, peer):
    answer = ask(listener, peer, "POST", "/v1/checkin", "Content-Type: application/json", body=body)
    assert kind_of(answer, 400) == "malformed-request"
    assert len(answer.json()["detail"].splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["\\ud800", "\\u0000", "\xe9\u4e2d\U0001f600", "a" * 101, "'); DROP TABLE clients; --"]
)
def test_a_hostile_name_is_accepted_or_refused(name, listener):
    body = f'{{"name": "{name}"}}'.encode()
    enrols = listener.peer(listener.enrolment_token)
    answer = ask(listener, enrols, "POST", "/v1/enrol", "Content-Type: application/json", body=body)
    assert answer.status_code in (201, 400)
    check_progress(listener, [listener.enrol()])


@pytest.mark.parametrize(
    "path",
    ["/v1/models/%ff", "/v1/models/%00", "/v1/models/0%2f..%2f0", "/v1/models/" + "9" * 5000, "/v1/models/%D9%A0",
     "/v1/../v1/models/x", "//v1/models/0", "*", "/v1/uploads/%F0%9F%98%80", "/v1/models/\xff", "/v1/models/1e0"],
    ids=ascii,
)  # fmt: skip
def test_an_unknown_path_is_refused(path, listener, peer):
    assert ask(listener, peer, "GET", path).status_code in (400, 404)


def test_an_additional_slash_does_not_redirect_to_another_host(listener, peer):
    answer = ask(listener, peer, "GET", "/v1/models/0/", "Host: evil.example")
    assert "evil.example" not in answer.headers.get("location", "")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "DELETE", "PUT", "GETT"])
def test_an_unknown_method_is_refused(method, listener, peer):
    assert ask(listener, peer, method, "/v1/models/0").status_code == 405


def test_many_ranges_cost_little(listener, peer):
    ranges = "Range: bytes=" + ",".join(f"{2 * number}-{2 * number}" for number in range(30_000))
    began = time.monotonic()
    answer = ask(listener, peer, "GET", "/v1/models/0", ranges)
    assert time.monotonic() - began < 2
    assert answer.status_code in (200, 206, 400, 416, 431)
    assert len(answer.content) < 100_000


def test_endless_headers_are_refused(listener, peer):
    with line(listener, peer) as opened:
        try:
            opened.begin("GET", "/v1/uploads/0", *(f"X-{number}: {'x' * 5000}" for number in range(200)))
            status = opened.answer().status_code
        except (ConnectionError, http.client.HTTPException):
            status = 431
    assert status in (400, 431)


def test_a_repeated_header_has_one_of_its_values(server):
    peer, other = server.enrol(), server.enrol()
    headers = (f"Authorization: Bearer {other.token}", "Content-Type: application/json")
    assert ask(server, peer, "POST", "/v1/checkin", *headers, body=b"{}").status_code == 200
    assert server.service.engine.coordinator.statistics.assigned == 1


def test_other_paths_and_methods(listener):
    http = listener.enrol().http
    assert kind_of(http.get("/v2/nothing"), 404) == "not-found"
    assert kind_of(http.get("/v1/checkin"), 405) == "method-not-allowed"
    assert kind_of(http.get("/v1/models/-1"), 400) == "malformed-request"
    assert "/v1/uploads/{number}" in http.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize("route", ["/v1/models/{version}", None])
def test_the_time_until_an_answer_begins_is_recorded_for_its_route(route):
    metrics, sent = Metrics(), []

    async def app(scope, receive, send):
        if route:
            scope["route"] = SimpleNamespace(path=route)
        await asyncio.sleep(0.02)
        await send({"type": "http.response.start"})
        await asyncio.sleep(0.2)
        await send({"type": "http.response.body"})

    async def send(message):
        sent.append(message["type"])

    asyncio.run(RequestTimer(app, metrics)({"type": "http"}, None, send))
    assert sent == ["http.response.start", "http.response.body"]
    text = metrics.text().decode()
    label = f'{{route="{route or "other"}"}}'
    assert f"offbeat_request_seconds_count{label} 1.0" in text
    assert 0.02 <= float(text.partition(f"offbeat_request_seconds_sum{label} ")[2].split()[0]) < 0.2


class Counted:
    """The kinds of refusals, and a front whose disk refuses."""

    def __init__(self):
        self.kinds: list[str] = []

    def disk_refusal(self, error):
        return Refusal("no-space", error.strerror, {"Retry-After": "5"})


@pytest.fixture
def counted():
    return Counted()


@pytest.fixture
def ask_failing(counted):
    app, errors = FastAPI(), []

    @app.get("/fails")
    @app.get("/models/{version}")
    async def fails(number: int = 0):
        raise errors[0]

    def get(path, error=None):
        errors[:] = [error]
        return TestClient(TypedRoutes(app, partial(error_answer, counted.disk_refusal, counted.kinds.append))).get(path)

    return get


@pytest.mark.parametrize(
    ("path", "error", "status", "kind"),
    [
        ("/fails", Refusal("busy", "later"), 503, "busy"),
        ("/fails", OSError(28, "full", "file"), 503, "no-space"),
        ("/fails", FileNotFoundError(2, "missing", "file"), 503, "no-space"),
        ("/models/3", FileNotFoundError(2, "missing", "file"), 404, "no-such-version"),
        ("/models/3", OSError(28, "full", "file"), 503, "no-space"),
        ("/fails?number=x", None, 400, "malformed-request"),
        ("/nothing", None, 404, "not-found"),
    ],
)
def test_every_error_is_a_problem_that_is_counted_and_logged(path, error, status, kind, ask_failing, counted, caplog):
    answer = ask_failing(path, error)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json().keys() == {"title", "status", "kind", "detail"}
    assert answer.json()["kind"] == kind
    assert counted.kinds == [kind]
    (logged,) = [record for record in caplog.records if record.message == "refused"]
    assert logged.fields == {"kind": kind, "detail": answer.json()["detail"]}


def test_a_refusal_keeps_its_headers(ask_failing):
    assert ask_failing("/fails", Refusal("busy", "later", {"Retry-After": "5"})).headers["retry-after"] == "5"


def test_a_closed_connection_is_not_a_refusal(ask_failing, counted):
    assert ask_failing("/fails", ClientDisconnect()).status_code == 499
    assert counted.kinds == []


def test_an_error_that_is_not_the_disks_is_a_bug(ask_failing):
    with pytest.raises(OSError, match="no name"):
        ask_failing("/fails", OSError("no name"))


def test_a_detail_is_one_short_line_of_ascii(ask_failing):
    detail = json.loads(ask_failing("/fails?number=é%0A" + "x" * 1000).content)["detail"]
    assert len(detail) < 500
    assert detail.isascii()
    assert len(detail.splitlines()) == 1
