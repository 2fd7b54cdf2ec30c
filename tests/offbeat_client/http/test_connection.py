import gzip
import json
import socket

import pytest
from offbeat_client.http.connection import Backoff, Connection, jitter
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import ServiceError, UnreachableError
from offbeat_core.messages import CheckedIn

from tests.offbeat_client.conftest import Fault

CHECK_IN = ("POST", "/v1/checkin")


@pytest.mark.parametrize("fault", [Fault(429), Fault(500), Fault(before_answer=True)], ids=str)
def test_what_may_pass_is_tried_again(server, connection, fault):
    server.faults[CHECK_IN] = [fault, fault]
    assert connection.ask(*CHECK_IN, CheckedIn).finished is True
    assert server.paths("POST") == ["/v1/checkin"] * 3


@pytest.mark.parametrize(("status", "kind", "attempts"), [(503, "busy", 4), (401, "revoked-token", 1)])
def test_attempts_end_and_other_refusals_are_final(server, connection, fault, status, kind, attempts):
    server.faults[CHECK_IN] = [fault(status, kind)] * 10
    with pytest.raises(ServiceError, match=rf"POST /v1/checkin: it is {kind} \({status} {kind}\)"):
        connection.ask(*CHECK_IN, CheckedIn)
    assert len(server.heard) == attempts


def test_waits_double_up_to_the_largest_beside_those_of_the_server(monkeypatch, server, fault):
    assert 0 <= min(jitter(10.0) for _ in range(99)) < 3
    waits = []
    monkeypatch.setattr("offbeat_client.http.connection.time.sleep", waits.append)
    monkeypatch.setattr("offbeat_client.http.connection.jitter", lambda seconds: seconds)
    server.faults[CHECK_IN] = [*[fault(500)] * 4, fault(503, "busy", {"Retry-After": "0.5"})]
    with Connection(server.url, backoff=Backoff(first_seconds=1.0, largest_seconds=3.0, attempts=6)) as connection:
        connection.ask(*CHECK_IN, CheckedIn)
    assert waits == [1.0, 2.0, 3.0, 3.0, 3.5]


def test_every_request_carries_the_token(server, connection):
    connection.ask(*CHECK_IN, CheckedIn)
    connection.token = "obc_2"
    connection.ask(*CHECK_IN, CheckedIn)
    assert [headers["Authorization"] for _, _, headers in server.heard] == ["Bearer obc_1", "Bearer obc_2"]


def test_a_server_that_is_silent_or_cannot_be_reached_is_named(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        server.close()
        for address, reason in ((url, "ReadTimeout"), (server.url, "ConnectError")):
            with (
                Connection(address, backoff=Backoff(attempts=1), read_seconds=0.1) as connection,
                pytest.raises(UnreachableError, match=f"{address} .*{reason}"),
            ):
                connection.ask(*CHECK_IN, CheckedIn)


@pytest.mark.parametrize(
    "url", ["", "host:8443", "ftp://host", "https://", "http://[::1", "https://host:65536", "http://me:pw@host"]
)
def test_other_urls_are_refused(url):
    with pytest.raises(OffbeatError, match="write https://host:port"):
        Connection(url)


def test_an_answer_is_never_decompressed(server, connection):
    content = b'{"visit": null, "retry_after_seconds": null, "finished": true}'
    server.raw["/v1/checkin"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(content))
    with pytest.raises(OffbeatError, match="did not answer as an Offbeat server does"):
        connection.ask("POST", "/v1/checkin", CheckedIn)
    assert server.heard[0][2]["Accept-Encoding"] == "identity"
    server.raw["/v1/checkin"] = (200, {}, content)
    assert connection.ask("POST", "/v1/checkin", CheckedIn).finished


def test_an_answer_is_read_up_to_a_limit(server, connection):
    content = b'{"visit": null, "retry_after_seconds": null, "finished": true}'.ljust(2**24)
    server.raw["/v1/checkin"] = (200, {}, content)
    assert connection.ask("POST", "/v1/checkin", CheckedIn).finished
    server.raw["/v1/checkin"] = (200, {}, content + b" ")
    with pytest.raises(OffbeatError, match=r"^the server's answer to POST /v1/checkin has more than 16777216 bytes: "):
        connection.ask("POST", "/v1/checkin", CheckedIn)


@pytest.mark.parametrize(("size", "reason"), [(2**16, "no"), (2**18, "Not Found")])
def test_a_refusal_is_read_up_to_a_limit(server, connection, size, reason):
    server.raw["/v1/checkin"] = (404, {}, rb'{"detail": "no\n'.ljust(size - 2, b".") + b'"}')
    with pytest.raises(ServiceError, match=rf"^POST /v1/checkin: {reason} \(404\)$"):
        connection.ask("POST", "/v1/checkin", CheckedIn)


def test_a_refusal_changes_no_terminal(server, connection):
    server.raw["/v1/checkin"] = (404, {}, json.dumps({"detail": "no\x1b[2J\u202e" + 2000 * "x" + "\nmore"}).encode())
    with pytest.raises(ServiceError) as caught:
        connection.ask("POST", "/v1/checkin", CheckedIn)
    assert caught.value.detail == "no?[2J?".ljust(1000, "x")
