"""The addresses of a server, for programs on this machine and for clients."""

import ssl
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably

_CERTIFICATE = "certificate.pem"  # in the folder
_EVERY_ADDRESS = "0.0.0.0"
_THIS_MACHINE = "127.0.0.1"


def local_host(host: str) -> str:
    """Return the host by which programs on this machine call a server at ``host``."""
    return _THIS_MACHINE if host == _EVERY_ADDRESS else host


def public_host(host: str, hosts: Sequence[str]) -> str:
    """Return the host by which clients call a server that listens at ``host``.

    It is ``host`` if that is one of ``hosts`` or of this machine alone, else the first of ``hosts`` that is not.
    """
    if host in hosts or _is_of_this_machine(host):
        return host
    return next((name for name in hosts if not _is_of_this_machine(name)), local_host(host))


def _is_of_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def write_address(folder: Path, url: str, certificate: Path | None) -> None:
    """Write a server's local address and its certificate into its folder."""
    copy = folder / _CERTIFICATE
    if certificate is None:
        copy.unlink(missing_ok=True)
    else:
        write_durably(copy, certificate.read_bytes())
    write_durably(folder / "url", f"{url}\n".encode("ascii"))


def trust(folder: Path) -> ssl.SSLContext | bool:
    """Return what programs on this machine trust: the folder's certificate."""
    certificate = folder / _CERTIFICATE
    if not certificate.exists():
        return True
    try:
        context = ssl.create_default_context(cafile=certificate)
    except OSError as error:  # also of OpenSSL
        raise OffbeatError(f"{certificate} cannot be read ({error}): start the server again") from None
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself, without that of its CA
    return context
