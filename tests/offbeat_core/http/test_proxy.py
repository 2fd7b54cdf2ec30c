"""A client behind a proxy, with the server's own CA."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from offbeat_client.client_run import run_client
from offbeat_client.http.connection import Backoff, Connection
from offbeat_core.errors import OffbeatError
from offbeat_core.http.proxy import proxy_of, unreachable
from offbeat_core.http.service_errors import UnreachableError

from tests.offbeat_client.conftest import Server

ONCE = Backoff(attempts=1)


class Proxy:
    """A proxy process, and what it was asked."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("connect_proxy.py")), *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def end(self) -> list[str]:
        """End the process; return the requests that it got."""
        self._process.terminate()
        return self._process.communicate(timeout=20)[0].splitlines()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def start() -> Generator[Callable[..., Proxy]]:
    """Return a function that starts a proxy."""
    proxies: list[Proxy] = []

    def make(*arguments: str) -> Proxy:
        proxies.append(Proxy(*arguments))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.end()


@pytest.fixture
def take_part(tls_server: tuple[Server, Path], tmp_path: Path, model: Any) -> Callable[..., int]:
    """Return a function that does a visit from enrolment to receipt."""
    server, _ = tls_server

    def call(**options: Any) -> int:
        server.serve(12, model)
        server.visits.clear()  # of an attempt that failed
        server.receipts.clear()
        server.offer(0, 12)
        fit, folder = lambda model, visit: (model, 7), tmp_path / "me"
        return run_client(server.url, lambda _: fit, folder, enrolment_token="obe_1", backoff=ONCE, **options)

    return call


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_whole_life_through_a_proxy_with_an_own_ca(
    variable: str, tls_server: Any, take_part: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server, ca), proxy = tls_server, start()
    monkeypatch.setenv(variable, f"http://{proxy.address}")
    if variable == "HTTPS_PROXY":  # the CA may come from the environment
        with pytest.raises(OffbeatError, match=r"is not trusted .* --ca"):
            take_part()
        monkeypatch.setenv("SSL_CERT_FILE", os.fspath(ca))
        assert take_part() == 1
    else:
        assert take_part(ca=ca) == 1
    assert set(proxy.end()) == {f"CONNECT {server.url.removeprefix('https://')} 200 OK"}


def test_a_proxy_that_asks_for_a_password_and_no_proxy(
    tls_server: Any, take_part: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, ca), proxy = tls_server, start("secret")
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    with pytest.raises(OffbeatError, match=r"write HTTPS_PROXY=http://NAME:PASSWORD@host:port"):
        take_part(ca=ca)
    monkeypatch.setenv("HTTPS_PROXY", f"http://site:secret@{proxy.address}")
    assert take_part(ca=ca) == 1
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert take_part(ca=ca) == 1  # directly


def refused(url: str) -> UnreachableError:
    with Connection(url, backoff=ONCE) as connection, pytest.raises(UnreachableError) as caught:
        connection.send("GET", "/")
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_proxy_that_refuses_is_named(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = start()
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    assert str(refused("https://fl.example:8443")).endswith("set NO_PROXY=fl.example to call it directly")
    hung_up = httpx.RemoteProtocolError("Server disconnected without sending a response.")
    direct = str(unreachable("http://127.0.0.1:22", hung_up, None))
    assert direct.endswith("; if this goes on, check the port, which may be another program's")
    message = str(refused("https://127.0.0.1:9"))
    where = f"the proxy http://{proxy.address} (HTTPS_PROXY)"
    assert message.startswith(f"https://127.0.0.1:9 cannot be reached through {where}: ")
    assert message.endswith("correct HTTPS_PROXY, or set NO_PROXY=127.0.0.1 to call this machine's server directly")


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "http_proxy", "all_proxy"])
def test_a_dead_proxy_is_named_with_its_variable(
    variable: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://site:secret@127.0.0.1:9")
    scheme = "http" if "http_" in variable.lower() else "https"
    url = server.url.replace("http:", f"{scheme}:")
    message = str(refused(url))
    assert message.startswith(f"the proxy http://127.0.0.1:9 ({variable}) to {url} cannot be reached: ConnectError: ")
    assert message.endswith(f"; correct {variable}, or set NO_PROXY=127.0.0.1 to call this machine's server directly")


@pytest.mark.parametrize(
    ("url", "left_out", "is_direct"),
    [
        ("https://fl.example", "fl.example", True),
        ("https://fl.example", "example", True),
        ("https://fl.example:8443", "fl.example:8443", True),
        ("https://fl.example:8443", "fl.example:1", False),
        ("https://[::1]:8443", "::1", True),
        ("https://fl.example", "ample", False),
    ],
)
def test_no_proxy_names_hosts_domains_and_ports(
    url: str, left_out: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", left_out)
    assert (proxy_of(url) is None) is is_direct


@pytest.mark.parametrize("address", ["ftp://proxy:1", "socks5://proxy:1080"])
def test_a_proxy_that_cannot_be_used_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(OffbeatError, match=r"the proxy in HTTPS_PROXY cannot be used"):
        Connection("https://127.0.0.1:9")
