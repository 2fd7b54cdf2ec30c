import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from offbeat_client.http.connection import Connection
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import UnreachableError
from offbeat_core.messages import CheckedIn
from offbeat_core.serving import certificates

CHECK_IN = ("POST", "/v1/checkin")


def test_the_certificate_is_checked(tls_server, quick):
    server, ca = tls_server
    with Connection(server.url, ca=ca, backoff=quick) as connection:
        assert connection.ask(*CHECK_IN, CheckedIn).finished is True
    for url, trusted in ((server.url, None), (server.url.replace("127.0.0.1", "localhost"), ca)):
        with (
            Connection(url, ca=trusted, backoff=quick) as connection,
            pytest.raises(OffbeatError, match=r"is not trusted .*give the file of its CA with --ca"),
        ):
            connection.ask(*CHECK_IN, CheckedIn)


@pytest.mark.parametrize("days", [-400, 3])
def test_a_certificate_outside_its_dates_sends_to_the_clocks(days, request, monkeypatch, quick):
    now = datetime.now(UTC) + timedelta(days=days)
    monkeypatch.setattr(certificates, "_now", lambda: now)
    server, ca = request.getfixturevalue("tls_server")
    with Connection(server.url, ca=ca, backoff=quick) as connection, pytest.raises(OffbeatError) as refused:
        connection.ask(*CHECK_IN, CheckedIn)
    assert str(refused.value).endswith(": compare the clocks of client and server, or renew the certificate")


def test_the_other_scheme_is_named_after_one_attempt(server, tls_server, quick):
    with Connection(server.url.replace("http:", "https:"), backoff=quick) as connection:
        with pytest.raises(OffbeatError, match=r"does not speak TLS: write http://") as refused:
            connection.ask(*CHECK_IN, CheckedIn)
        assert not isinstance(refused.value, UnreachableError)
    url = tls_server[0].url.replace("https:", "http:")
    with Connection(url, backoff=quick) as connection, pytest.raises(OffbeatError, match=r"speaks TLS: write https://"):
        connection.ask(*CHECK_IN, CheckedIn)


def test_a_server_that_hangs_up_is_tried_again(quick):
    def hang_up():
        for _ in range(2 * quick.attempts):  # each attempt, and the look whether the port speaks TLS
            connection, _ = listener.accept()
            connection.recv(1)
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        with (
            Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", backoff=quick) as connection,
            pytest.raises(UnreachableError),
        ):
            connection.ask(*CHECK_IN, CheckedIn)


def test_a_server_that_has_answered_is_not_asked_for_tls(quick):
    """Each look takes up to five seconds, which clients on a bad line would lose at every break."""
    calls = []

    def answer_once():
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                calls.append(connection.recv(1000))
                if len(calls) == 1:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer_once, daemon=True).start()
        with Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", backoff=quick) as connection:
            assert connection.send("GET", "/readyz").json() == {}
            with pytest.raises(UnreachableError):
                connection.send("GET", "/readyz")
    assert len(calls) == 2


def test_a_port_of_another_program_is_named_after_one_attempt(quick):
    def greet():
        connection, _ = listener.accept()
        connection.sendall(b"-ERR unknown command\r\n\r\n")
        connection.recv(1000)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=greet, daemon=True).start()
        with (
            Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", backoff=quick) as connection,
            pytest.raises(OffbeatError, match=r"does not speak HTTP: it is another program's, check the port"),
        ):
            connection.ask(*CHECK_IN, CheckedIn)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\x80\x81", "it is not text"), (b"key\n", "it has no certificate"), (None, "No such file")],
)
def test_a_file_without_certificates_is_refused(content, reason, tmp_path):
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(OffbeatError, match=rf"{reason}.*; --ca is a PEM file"):
        Connection("https://127.0.0.1:9", ca=tmp_path / "ca.pem")
