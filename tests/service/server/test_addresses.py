"""The addresses of a server, for clients and for programs on its machine."""

import ssl
import threading

import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.certificates import make_certificates

from offbeat.service.server.addresses import local_host, public_host, trust, write_address
from offbeat.service.server.admin import status
from tests.service.conftest import running

OURS = ("localhost", "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "hosts", "expected"),
    [
        ("127.0.0.1", OURS, "127.0.0.1"),
        ("0.0.0.0", OURS, "127.0.0.1"),
        ("0.0.0.0", ("localhost", "fl.example", "10.0.0.5"), "fl.example"),
        ("127.0.0.1", ("fl.example",), "127.0.0.1"),  # a proxy has the name, and another port
        ("10.0.0.5", ("fl.example", "10.0.0.5"), "10.0.0.5"),
        ("10.0.0.5", ("fl.example",), "fl.example"),
        ("10.0.0.5", OURS, "10.0.0.5"),
    ],
)
def test_clients_call_the_server_by_its_public_name(host, hosts, expected):
    assert public_host(host, hosts) == expected
    assert local_host(host) == ("127.0.0.1" if host == "0.0.0.0" else host)


def test_a_server_that_listens_everywhere_has_an_address_for_clients_and_one_for_its_machine(tmp_path):
    with running(tmp_path / "server", host="0.0.0.0", hosts=("localhost", "fl.example")) as server:
        port = server.url.rpartition(":")[2]
        assert (server.url, server.public_url) == (f"http://127.0.0.1:{port}", f"http://fl.example:{port}")
        assert (tmp_path / "server" / "url").read_text() == f"{server.url}\n"


def test_the_status_is_shown_whatever_names_the_certificate_is_for(tmp_path):
    folder = tmp_path / "server"
    with running(folder, certificates=make_certificates(tmp_path / "tls", ["fl.example"])) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert status(folder)["version"] == 0
        # Another server at this address is not trusted.
        (folder / "certificate.pem").write_bytes(make_certificates(tmp_path / "other", ["x"]).certificate.read_bytes())
        with pytest.raises(OffbeatError, match="CERTIFICATE_VERIFY_FAILED"):
            status(folder)


def test_a_certificate_is_whole_whenever_it_is_read(tmp_path):
    """A server writes it at each start, while programs ask whether the server runs again."""
    certificates = make_certificates(tmp_path / "tls", ["localhost"])
    stop = threading.Event()

    def start_again():
        while not stop.is_set():
            write_address(tmp_path, "https://127.0.0.1:1", certificates.certificate)

    write_address(tmp_path, "https://127.0.0.1:1", certificates.certificate)
    thread = threading.Thread(target=start_again)
    thread.start()
    try:
        for _ in range(300):
            assert isinstance(trust(tmp_path), ssl.SSLContext)
    finally:
        stop.set()
        thread.join()
    write_address(tmp_path, "http://127.0.0.1:1", None)
    assert trust(tmp_path) is True


def test_a_broken_certificate_is_one_line(tmp_path):
    (tmp_path / "certificate.pem").write_text("half of it")
    with pytest.raises(OffbeatError, match=r"certificate\.pem cannot be read .*: start the server again$"):
        trust(tmp_path)
