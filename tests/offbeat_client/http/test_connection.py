import time
from pathlib import Path

import pytest

from offbeat_client.errors import OffbeatError
from offbeat_client.http.connection import Connection
from offbeat_client.http.refusal import ServiceError, UnreachableError
from offbeat_client.http.retry import Backoff
from offbeat_client.messages import CheckedIn

CHECK_IN = ("POST", "/v1/checkin")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_temporary_refusals_are_tried_again(server, connection, fault, status):
    server.faults[CHECK_IN] = [fault(status), fault(status)]
    assert connection.ask(*CHECK_IN, CheckedIn).finished is True
    assert server.paths("POST") == ["/v1/checkin"] * 3


def test_a_broken_connection_is_tried_again(server, connection, fault):
    server.faults[CHECK_IN] = [fault(before_answer=True)]
    assert connection.ask(*CHECK_IN, CheckedIn).finished is True
    assert len(server.heard) == 2


def test_attempts_end(server, connection, fault):
    server.faults[CHECK_IN] = [fault(503, "busy")] * 10
    with pytest.raises(ServiceError, match=r"POST /v1/checkin: it is busy \(503 busy\)"):
        connection.ask(*CHECK_IN, CheckedIn)
    assert len(server.heard) == 4


def test_the_server_says_how_long_to_wait(server, connection, fault):
    server.faults[CHECK_IN] = [fault(503, "busy", {"Retry-After": "0.3"})]
    began = time.monotonic()
    connection.ask(*CHECK_IN, CheckedIn)
    assert time.monotonic() - began >= 0.3


def test_waits_double_up_to_the_largest_and_are_drawn_anew(monkeypatch, server, fault):
    waits = []
    monkeypatch.setattr("offbeat_client.http.retry.time.sleep", waits.append)
    monkeypatch.setattr("offbeat_client.http.retry.jitter", lambda seconds: seconds)
    server.faults[CHECK_IN] = [fault(500)] * 4
    with Connection(server.url, backoff=Backoff(first_seconds=1.0, largest_seconds=3.0, attempts=5)) as connection:
        connection.ask(*CHECK_IN, CheckedIn)
    assert waits == [1.0, 2.0, 3.0, 3.0]


def test_a_refusal_has_status_kind_and_detail_and_is_final(server, connection, fault):
    server.faults[CHECK_IN] = [fault(401, "revoked-token")]
    with pytest.raises(ServiceError) as caught:
        connection.ask(*CHECK_IN, CheckedIn)
    error = caught.value
    assert (error.status, error.kind, error.detail) == (401, "revoked-token", "it is revoked-token")
    assert len(server.heard) == 1


def test_every_request_carries_the_token(server, connection):
    connection.ask(*CHECK_IN, CheckedIn)
    connection.token = "obc_2"
    connection.ask(*CHECK_IN, CheckedIn)
    assert [headers["Authorization"] for _, _, headers in server.heard] == ["Bearer obc_1", "Bearer obc_2"]


def test_an_unreachable_server_is_named(server, quick):
    server.close()
    with Connection(server.url, backoff=quick) as connection, pytest.raises(UnreachableError, match=server.url):
        connection.ask(*CHECK_IN, CheckedIn)


def test_the_read_limit_holds(quick):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Connection(url, backoff=Backoff(attempts=1), read_seconds=0.1) as connection,
            pytest.raises(UnreachableError, match="ReadTimeout"),
        ):
            connection.ask(*CHECK_IN, CheckedIn)


@pytest.mark.parametrize("url", ["", "host:8443", "ftp://host", "https://", "http://[::1"])
def test_other_urls_are_refused(url):
    with pytest.raises(OffbeatError, match="write https://host:port"):
        Connection(url)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_other_ca_files_are_refused(tmp_path: Path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OffbeatError, match=r"ca\.pem"):
        Connection("https://localhost", ca=path)


def test_another_kind_of_server_is_noticed(server, connection):
    server.etags[1], server.models[1] = '"1"', b"<html>"
    with pytest.raises(OffbeatError, match="did not answer as an Offbeat server"):
        connection.ask("GET", "/v1/models/1", CheckedIn)


def test_the_certificate_is_checked(tls_server, quick):
    server, ca = tls_server
    with Connection(server.url, ca=ca, backoff=quick) as connection:
        assert connection.ask(*CHECK_IN, CheckedIn).finished is True
    with (
        Connection(server.url, backoff=quick) as connection,
        pytest.raises(OffbeatError, match=r"is not trusted .*give the file of its CA with --ca"),
    ):
        connection.ask(*CHECK_IN, CheckedIn)
    with (
        Connection(server.url.replace("127.0.0.1", "localhost"), ca=ca, backoff=quick) as connection,
        pytest.raises(OffbeatError, match="is not trusted"),
    ):
        connection.ask(*CHECK_IN, CheckedIn)
