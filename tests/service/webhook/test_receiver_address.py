import asyncio
import socket

import pytest

from offbeat.service.webhook.receiver_address import address_of, is_internal

INSIDE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"),
    *("2002:a00:1::", "192.0.2.1", "2001:db8::1"),
]
OUTSIDE = ["93.184.216.34", "1.1.1.1", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_known(address: str) -> None:
    assert is_internal(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_outside_is_not_one_inside(address: str) -> None:
    assert not is_internal(address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "0", "2130706433", "0x7f.1", "::1"])
def test_a_host_of_this_machine_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(PermissionError, match=r"leads to .*: set webhook.internal = true if it may"):
        asyncio.run(address_of(host, may_be_internal=False))
    assert asyncio.run(address_of(host, may_be_internal=True)) in ("127.0.0.1", "0.0.0.0", "::1")


def test_one_address_inside_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ("1.1.1.1", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(PermissionError, match=r"10\.0\.0\.1"):
        asyncio.run(address_of("hooks.example", may_be_internal=False))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 300, ".".join("a" * 70 for _ in range(3))])
def test_an_unknown_host_is_an_error_of_the_network(host: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        asyncio.run(address_of(host, may_be_internal=False))
