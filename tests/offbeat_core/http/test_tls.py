import socket
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

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


@pytest.fixture
def answering():
    """Return a function that gives each connection the next answer; then come its URL, and the requests so far."""
    with ExitStack() as stack:

        def start(*answers):
            listener, heard = stack.enter_context(socket.create_server(("127.0.0.1", 0))), []

            def serve():
                with suppress(OSError):
                    for answer in chain(answers, repeat(b"")):
                        connection, _ = listener.accept()
                        heard.append(connection.recv(1000))
                        connection.sendall(answer)
                        connection.close()

            threading.Thread(target=serve, daemon=True).start()
            return f"http://127.0.0.1:{listener.getsockname()[1]}", heard

        yield start


def test_a_server_that_hangs_up_is_tried_again(answering, quick):
    url, heard = answering()
    with Connection(url, backoff=quick) as connection, pytest.raises(UnreachableError):
        connection.ask(*CHECK_IN, CheckedIn)
    assert len(heard) == 2 * quick.attempts  # each attempt, and the look whether the port speaks TLS


def test_a_server_that_has_answered_is_not_asked_for_tls(answering, quick):
    """Each look takes up to five seconds, which clients on a bad line would lose at every break."""
    url, heard = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    with Connection(url, backoff=quick) as connection:
        assert connection.send("GET", "/readyz").json() == {}
        with pytest.raises(UnreachableError):
            connection.send("GET", "/readyz")
    assert len(heard) == 2


def test_a_port_of_another_program_is_named_after_one_attempt(answering, quick):
    url, _ = answering(b"-ERR unknown command\r\n\r\n")
    message = r"does not speak HTTP: it is another program's, check the port"
    with Connection(url, backoff=quick) as connection, pytest.raises(OffbeatError, match=message):
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
