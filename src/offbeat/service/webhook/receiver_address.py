"""The address of a receiver, which is on the public internet unless allowed."""

import asyncio
import ipaddress
import socket

Address = str

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # an IPv4 address in the last 32 bits (RFC 6052)


async def address_of(host: str, *, may_be_internal: bool) -> Address:
    """Return an IP address of a host.

    Raises:
        PermissionError: One of its addresses is inside: of this machine, its network, or no single machine.
        OSError: The host is not known.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host!r} is not a host's name") from None
    addresses = [str(entry[4][0]) for entry in found]
    inside = [address for address in addresses if is_internal(address)]
    if inside and not may_be_internal:
        raise PermissionError(f"{host} leads to {inside[0]}, an address inside: set webhook.internal = true if it may")
    return addresses[0]


def is_internal(address: Address) -> bool:
    """Return whether an IP address is not one machine's on the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        translated = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _TRANSLATED else None
        ip = translated or ip.ipv4_mapped or ip.sixtofour or ip
    return not ip.is_global or ip.is_multicast
