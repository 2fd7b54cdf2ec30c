"""The server's connection to a helper, over HTTPS."""

import hashlib
import http.server
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass

import httpx
import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import UnreachableError
from offbeat_private.helper.helper import Helper
from offbeat_private.signed_terms import verify

from offbeat.service.masked.helper_connection import HelperConnection, HelperRefusedError
from tests.offbeat_private.helper.conftest import CLIENT_KEYS, TERMS, enrol_clients, records_for, running
from tests.offbeat_private.helper.test_helper import expected_words

LENGTH = TERMS["length"]


@dataclass
class Announced:
    """A helper as clients know it: from its announced facts."""

    terms: object
    announced: object

    def facts(self):
        return self.announced


def seal(folder, connection, visits, **changes):
    terms = verify((folder / "terms.json").read_bytes()).terms
    return records_for(Announced(terms, connection.facts()), visits, **changes)


@pytest.fixture
def enrolled(tmp_path):
    """A folder, and the server's token."""
    return tmp_path, enrol_clients(tmp_path).token


@contextmanager
def connected(folder, token):
    with running(folder) as url, HelperConnection(url, token, folder / "tls" / "ca.pem", LENGTH) as connection:
        yield connection


def test_facts_and_answers_come_over_https(enrolled):
    folder, token = enrolled
    with connected(folder, token) as connection:
        facts = connection.facts()
        assert (facts.head.number, facts.epoch) == (0, 0)
        records = seal(folder, connection, {0: 1, 1: 1, 2: 1})
        answer = connection.open(1, records)
        again = connection.open(1, records[::-1])
        assert answer.words.dtype == np.uint32
        assert (again.words == answer.words).all()
        assert again[1:] == answer[1:]
        assert connection.facts().head == answer.head
        assert connection.facts().signature == answer.signature
    with closing(Helper(folder)) as helper:
        assert answer.words.tolist() == expected_words(folder, helper.terms, 1, {0: 1, 1: 1, 2: 1})
        inside = helper.facts()
        assert (answer.head, answer.signature) == (inside.head, inside.signature)
        assert (facts.run, facts.terms) == (helper.terms.run, hashlib.sha256(helper.terms.to_bytes()).digest())
        assert facts.epoch_key == inside.epoch_key


def test_a_refusal_names_kind_and_client(enrolled):
    with connected(*enrolled) as connection:
        folder, _ = enrolled
        few = seal(folder, connection, {0: 1, 1: 1})
        with pytest.raises(HelperRefusedError, match="2 clients, this run opens 3 or more") as caught:
            connection.open(1, few)
        assert (caught.value.kind, caught.value.client) == ("too-few-clients", None)
        with pytest.raises(HelperRefusedError) as caught:
            connection.open(1, [*few, *seal(folder, connection, {5: 1}, version=1)])
        assert (caught.value.kind, caught.value.client) == ("version-ahead", CLIENT_KEYS[5])
        assert connection.facts().head.number == 0


def test_only_the_servers_token_opens(enrolled):
    folder, token = enrolled
    with running(folder) as url:
        ca = folder / "tls" / "ca.pem"
        for other in (f"{token[:-1]}{'A' if token[-1] != 'A' else 'B'}", "obh_", "x", token.replace("obh_", "obe_")):
            with HelperConnection(url, other, ca, LENGTH) as connection:
                for ask in (connection.facts, lambda: connection.open(1, [])):
                    with pytest.raises(HelperRefusedError) as caught:
                        ask()
                    assert caught.value.kind == "unknown-token"
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            HelperConnection(url, token, None, LENGTH).facts()


def test_a_helper_that_is_not_there_is_unreachable(enrolled):
    folder, token = enrolled
    with running(folder) as url:
        pass
    with HelperConnection(url, token, folder / "tls" / "ca.pem", LENGTH) as connection:
        with pytest.raises(UnreachableError, match="cannot be reached"):
            connection.facts()
        with pytest.raises(UnreachableError):
            connection.open(1, [])


def test_a_wrong_certificates_file_is_one_line(tmp_path):
    with pytest.raises(OffbeatError, match="cannot read the certificates"):
        HelperConnection("https://localhost:1", "token", tmp_path / "nothing.pem", LENGTH)


class Proxy(http.server.BaseHTTPRequestHandler):
    """Answers with a status, headers and a body."""

    answer = (200, {}, b"")

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        status, headers, body = self.answer
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815


@pytest.fixture
def proxy():
    """A connection to a server that answers anything."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with HelperConnection(f"http://127.0.0.1:{server.server_port}", "token", None, LENGTH) as connection:
            yield connection
        server.shutdown()
        thread.join()


HEAD = {"Offbeat-Head": f"1:{'00' * 32}", "Offbeat-Head-Signature": "00" * 64}


@pytest.mark.parametrize(
    ("status", "headers", "body", "error"),
    [
        (502, {}, b"<html>", UnreachableError),
        (503, {}, b'{"kind": "no-space", "detail": "full"}', UnreachableError),
        (404, {}, b"<html>", HelperRefusedError),
        (422, {}, b'{"kind": "x", "detail": "y", "client": "zz"}', HelperRefusedError),
        (200, HEAD, bytes(4 * LENGTH - 1), UnreachableError),
        (200, HEAD, bytes(4 * LENGTH + 1), UnreachableError),
        (200, HEAD | {"Content-Length": "9" * 12}, bytes(10**6), UnreachableError),
        (200, {**HEAD, "Offbeat-Head": f"2:{'00' * 32}"}, bytes(4 * LENGTH), UnreachableError),
        (200, {}, bytes(4 * LENGTH), OffbeatError),
        (200, {**HEAD, "Offbeat-Head": "one"}, bytes(4 * LENGTH), OffbeatError),
    ],
)
def test_what_others_answer_is_not_trusted(proxy, status, headers, body, error):
    Proxy.answer = status, headers, body
    with pytest.raises(error) as caught:
        proxy.open(1, [bytes(420)])
    assert "\n" not in str(caught.value)
    with pytest.raises(OffbeatError):
        proxy.facts()


def test_an_answer_is_read_as_it_was_sent(proxy):
    Proxy.answer = 200, HEAD, np.arange(LENGTH, dtype="<u4").tobytes()
    answer = proxy.open(1, [])
    assert answer.words.tolist() == list(range(LENGTH))
    assert answer.head == (1, bytes(32))
    assert answer.signature == bytes(64)


def test_the_token_is_sent_to_the_helper_alone(proxy):
    Proxy.answer = 307, {"Location": "https://elsewhere.example/"}, b""
    with pytest.raises(HelperRefusedError):
        proxy.facts()
    assert isinstance(proxy._http, httpx.Client)
    assert not proxy._http.follow_redirects


def test_a_longer_answer_is_not_read_to_its_end(proxy):
    Proxy.answer = 200, HEAD, bytes(10**6)
    with pytest.raises(UnreachableError, match=f"sent more than {4 * LENGTH} bytes"):
        proxy.open(1, [])


def test_a_dead_proxy_is_named_with_its_variable(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with (
        HelperConnection("https://helper.example", "token", None, LENGTH) as connection,
        pytest.raises(
            UnreachableError, match=r"^the proxy http://127\.0\.0\.1:9 \(HTTPS_PROXY\) to .* NO_PROXY=helper\."
        ),
    ):
        connection.facts()


def test_a_helper_that_is_not_trusted_names_the_setting(enrolled):
    folder, token = enrolled
    with (
        running(folder) as url,
        HelperConnection(url, token, None, LENGTH) as connection,
        pytest.raises(UnreachableError, match=r"is not trusted .* with service\.helper_ca"),
    ):
        connection.facts()


def test_a_redirect_and_a_web_page_are_named(proxy):
    Proxy.answer = 302, {"Location": "http://login.example/"}, b""
    with pytest.raises(HelperRefusedError, match=r"redirects to http://login\.example/"):
        proxy.facts()
    Proxy.answer = 200, {}, b"<html>"
    with pytest.raises(OffbeatError, match="it is a web page; check host, port and proxy"):
        proxy.facts()
