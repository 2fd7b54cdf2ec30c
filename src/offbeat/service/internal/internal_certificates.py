"""Certificates and TLS contexts of leaders and fronts on several machines.

A deployment has one CA. Its certificates name a role and not a machine: a front accepts only a certificate of a leader,
whatever its address, and a leader only that of a front.
"""

import logging
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.certificates import Certificates, make_signed
from offbeat_core.serving.console_log import event

LEADER_NAME = "leader.offbeat.internal"
"""The name in the certificates of servers that may lead."""

FRONT_NAME = "front.offbeat.internal"
"""The name in the certificates of fronts."""

_MACHINE = re.compile(r"(?!ca\Z)[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def make_internal_certificates(folder: Path, leaders: Sequence[str], fronts: Sequence[str]) -> dict[str, Certificates]:
    """Make a CA, and a certificate for each leader and front; return them by machine.

    Leaders are all servers that may lead. ``ca.pem``, ``MACHINE.pem`` and ``MACHINE.key`` are for the machine;
    ``ca.key``, which can sign more, stays here. A certificate is valid for a year, and kept until 30 days before its
    end. The CA is always kept; to shut a machine out, make all of them anew in another folder.
    """
    roles = {**dict.fromkeys(leaders, LEADER_NAME), **dict.fromkeys(fronts, FRONT_NAME)}
    if len(roles) < len(leaders) + len(fronts):
        raise OffbeatError("each leader and front needs a certificate of its own: give each another name")
    made: dict[str, Certificates] = {}
    for machine, role in roles.items():
        if not _MACHINE.fullmatch(machine):
            raise OffbeatError(
                f"{machine!r} cannot name a certificate: use at most 40 letters, digits, - and _, and not 'ca'"
            )
        made[machine] = Certificates(folder / "ca.pem", folder / f"{machine}.pem", folder / f"{machine}.key")
        usage = ExtendedKeyUsageOID.SERVER_AUTH if role == LEADER_NAME else ExtendedKeyUsageOID.CLIENT_AUTH
        make_signed(made[machine], [x509.DNSName(role)], usage, authority="internal CA", subject=machine)
    return made


def front_context(certificates: Certificates) -> ssl.SSLContext:
    """Return a front's context; ``OffbeatError`` if a file cannot be used."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, certificates)


def leader_context(certificates: Certificates) -> ssl.SSLContext:
    """Return a leader's context, which takes up new files; see ``front_context``.

    Files that cannot be used are logged, and those before them stay in use.
    """
    current, stamps = _leader_context(certificates), _stamps(certificates)

    def take_up(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        nonlocal current, stamps
        if (found := _stamps(certificates)) != stamps:
            stamps = found
            try:
                current = _leader_context(certificates)
            except OffbeatError as error:
                event("certificates_broken", logging.ERROR, problem=str(error))
        connection.context = current

    outer = _leader_context(certificates)
    outer.sni_callback = take_up
    return outer


def _leader_context(certificates: Certificates) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificates)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # so that each connection shows its certificate
    return context


def _context(protocol: int, certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(certificates.ca)
        context.load_cert_chain(certificates.certificate, certificates.key)
    except OSError as error:  # also ssl.SSLError
        raise OffbeatError(
            f"cannot use {certificates.certificate}, its key or {certificates.ca}: {error}: make or copy them again"
        ) from None
    return context


def _stamps(certificates: Certificates) -> list[tuple[int, int]]:
    """Return numbers that change when a file is replaced."""
    stamps: list[tuple[int, int]] = []
    for path in (certificates.ca, certificates.certificate, certificates.key):
        with suppress(OSError):  # it is missing now
            found = path.stat()
            stamps.append((found.st_mtime_ns, found.st_ino))
    return stamps
