"""Certificates for a trial: an authority's, and one that it signs for the server."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably

_CA_DAYS = 3650
_DAYS = 365
_RENEW_DAYS = 30
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")

_Key = ec.EllipticCurvePrivateKey
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files that a server and its clients need."""

    ca: Path  # the authority's certificate, which clients trust
    certificate: Path  # signed by the CA
    key: Path  # the certificate's private key


def make_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """Make a certification authority (CA) and a server's certificate in a folder.

    The files are ``ca.pem``, ``ca.key``, ``server.pem`` and ``server.key``. The hosts are names and IP addresses by
    which clients call the server.

    A server's certificate that is valid for these hosts for 30 days more is kept; any other is renewed. An existing CA
    is always kept, since the clients know it.
    """
    if not hosts:
        raise OffbeatError("a certificate needs a host: say by what names or addresses clients call the server")
    certificates = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    names = [_name(host) for host in hosts]
    make_signed(certificates, names, ExtendedKeyUsageOID.SERVER_AUTH, authority="trial CA", subject="server")
    return certificates


def make_signed(
    certificates: Certificates,
    names: list[x509.GeneralName],
    usage: x509.ObjectIdentifier,
    *,
    authority: str,
    subject: str,
) -> None:
    """Make a CA, unless there is one, and a certificate for ``names``.

    A certificate that is valid for the names for 30 days more is kept.
    """
    folder = certificates.ca.parent
    for missing in (folder.parent, folder):
        try:
            missing.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OffbeatError(f"cannot use the folder {missing}: {error.strerror}: set service.folder") from None
    if not certificates.ca.exists():
        _write_ca(certificates.ca, authority)
    if not _are_valid(certificates, names):
        _write_signed(certificates, names, usage, subject)


def check_certificate(path: Path, key_path: Path) -> None:
    """Check that a certificate of the user's can be used now, with its key.

    Raises:
        OffbeatError: A file is missing or damaged, the two do not belong together, or the certificate is not valid now.
    """
    try:
        certificate = x509.load_pem_x509_certificates(_read(path, "certificate"))[0]
    except ValueError:
        raise OffbeatError(f"service.certificate: {path} does not hold a certificate in PEM format") from None
    try:
        key = serialization.load_pem_private_key(_read(key_path, "key"), password=None)
    except TypeError:
        raise OffbeatError(
            f"service.key: {key_path} is encrypted: decrypt it with openssl pkey -in {key_path} -out FILE"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise OffbeatError(f"service.key: {key_path} does not hold a private key in PEM format") from None
    if certificate.public_key() != key.public_key():
        raise OffbeatError(
            f"service.certificate: {path} is not for the key {key_path}: name the certificate's own key; the server's "
            "certificate comes first in its file"
        )
    if not certificate.not_valid_before_utc <= _now() <= certificate.not_valid_after_utc:
        raise OffbeatError(
            f"service.certificate: {path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d} to "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}: renew it, or set this machine's clock"
        )


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OffbeatError(f"service.{name}: cannot read {path}: {error.strerror}") from None


def fingerprint(path: Path) -> str:
    """Return a certificate's SHA-256 in the form that ``openssl`` and browsers show."""
    return x509.load_pem_x509_certificate(path.read_bytes()).fingerprint(hashes.SHA256()).hex(":").upper()


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if _HOST_NAME.fullmatch(host):
            return x509.DNSName(host.lower())
    raise OffbeatError(f"{host!r} is neither a host's name nor an IP address: leave out scheme, port and path")


def _now() -> datetime:
    return datetime.now(UTC)


def _are_valid(certificates: Certificates, names: list[x509.GeneralName]) -> bool:
    """Return whether the files exist, belong together, and are valid.

    They have to cover ``names`` and last 30 more days.
    """
    try:
        certificate = x509.load_pem_x509_certificate(certificates.certificate.read_bytes())
        key = _read_key(certificates.key)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(certificates.ca.read_bytes()))
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return certificate.public_key() == key.public_key() and set(names) <= set(covered) and _lasts_30_days(certificate)


def _lasts_30_days(certificate: x509.Certificate) -> bool:
    return certificate.not_valid_after_utc >= _now() + timedelta(days=_RENEW_DAYS)


def _write_ca(path: Path, authority: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string(f"CN=Offbeat {authority}")
    certificate = (
        _builder(name, name, key, _now() + timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    # The certificate comes last: once it is there, so is its key.
    _write(path.with_suffix(".key"), _pem(key))
    _write(path, certificate.public_bytes(_PEM))


def _write_signed(
    certificates: Certificates, names: list[x509.GeneralName], usage: x509.ObjectIdentifier, subject: str
) -> None:
    ca, ca_key = _read_ca(certificates.ca)
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(_now() + timedelta(days=_DAYS), ca.not_valid_after_utc)
    certificate = (
        _builder(x509.Name.from_rfc4514_string(f"CN=Offbeat {subject}"), ca.subject, key, end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    _write(certificates.key, _pem(key))
    _write(certificates.certificate, certificate.public_bytes(_PEM))


def _read_ca(path: Path) -> tuple[x509.Certificate, _Key]:
    key_path = path.with_suffix(".key")
    try:
        certificate, key = x509.load_pem_x509_certificate(path.read_bytes()), _read_key(key_path)
    except (FileNotFoundError, ValueError, TypeError):
        raise _cannot_renew(f"{path} or {key_path} is missing or damaged") from None
    if certificate.public_key() != key.public_key():
        raise _cannot_renew(f"{path} and {key_path} do not belong together")
    if not _lasts_30_days(certificate):
        raise _cannot_renew(f"{path} ends on {certificate.not_valid_after_utc:%Y-%m-%d}")
    return certificate, key


def _cannot_renew(problem: str) -> OffbeatError:
    return OffbeatError(
        f"a certificate must be made, but {problem}: put the right file back; or, to begin anew, move the folder's "
        "files away and give all clients the new ca.pem"
    )


def _read_key(path: Path) -> _Key:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, _Key):
        raise TypeError(f"{path} is not an EC key")
    return key


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - timedelta(days=1))  # clocks differ
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    # In order: signatures, commitment, encipherment of keys and of data, agreement on keys, certificates, revocation
    # lists, and two that go with the agreement.
    return x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False)


def _pem(key: _Key) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _write(path: Path, data: bytes) -> None:
    write_durably(path, data, mode=0o600)
