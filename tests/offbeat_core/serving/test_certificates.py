import hashlib
import ipaddress
import re
import ssl
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from offbeat_core.errors import OffbeatError
from offbeat_core.serving import certificates
from offbeat_core.serving.certificates import Certificates, fingerprint, make_certificates

from tests.error_line import error_line

HOSTS = ("localhost", "Server.Example", "127.0.0.1", "::1")


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(made: Certificates) -> tuple[bytes, bytes, bytes]:
    return made.ca.read_bytes(), made.certificate.read_bytes(), made.key.read_bytes()


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Move the clock; from now on, not from where it is moved to."""
    now = certificates._now()
    monkeypatch.setattr(certificates, "_now", lambda: now + timedelta(days=days))


def shake_hands(made: Certificates, ca: Path, host: str) -> None:
    """Connect over TLS, in memory, to a server that is called ``host``."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(made.certificate, made.key)
    client_context = ssl.create_default_context(cafile=ca)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(down, up, server_hostname=host)
    server = server_context.wrap_bio(up, down, server_side=True)
    for end in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert client.version() == server.version() == "TLSv1.3"


def test_clients_that_trust_the_ca_connect_to_the_hosts_only(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "ours", HOSTS)
    for host in ("localhost", "server.example", "127.0.0.1", "::1"):
        shake_hands(made, made.ca, host)
    for host in ("elsewhere.example", "a.localhost", "127.0.0.2"):
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            shake_hands(made, made.ca, host)
    foreign = make_certificates(tmp_path / "foreign", HOSTS)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(made, foreign.ca, "localhost")


def test_the_certificates_name_their_uses_and_are_for_the_owner_alone(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "a" / "b", HOSTS)
    modes = {path.name: path.stat().st_mode & 0o777 for path in made.ca.parent.iterdir()}
    assert modes == dict.fromkeys(("ca.pem", "ca.key", "server.pem", "server.key"), 0o600)
    ca, server = load(made.ca), load(made.certificate)
    now = certificates._now()
    assert abs(ca.not_valid_after_utc - now - timedelta(days=3650)) < timedelta(minutes=5)
    assert abs(server.not_valid_after_utc - now - timedelta(days=365)) < timedelta(minutes=5)
    for certificate, is_ca in ((ca, True), (server, False)):
        assert certificate.not_valid_before_utc < now
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert constraints.critical
        assert constraints.value.ca is is_ca
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert usage.value.key_cert_sign is is_ca
        assert usage.value.digital_signature is not is_ca
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "server.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(host) for host in HOSTS[2:]]
    extended = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(extended) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]


def test_valid_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificates(tmp_path, HOSTS)
    before = contents(made)
    (tmp_path / "ca.key").unlink()  # whoever keeps it elsewhere may
    later(monkeypatch, 334)
    assert contents(make_certificates(tmp_path, HOSTS)) == before
    assert contents(make_certificates(tmp_path, ["127.0.0.1", "LOCALHOST"])) == before


def renewed(made: Certificates, hosts: tuple[str, ...] = HOSTS) -> bool:
    """Make them again; return whether the server's certificate is another, by the same CA, and good."""
    ca, certificate, _ = contents(made)
    make_certificates(made.ca.parent, hosts)
    assert made.ca.read_bytes() == ca
    load(made.certificate).verify_directly_issued_by(load(made.ca))
    return made.certificate.read_bytes() != certificate


def test_a_certificate_is_renewed_before_its_end_and_for_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificates(tmp_path, HOSTS)
    assert renewed(made, (*HOSTS, "more.example"))
    shake_hands(made, made.ca, "more.example")
    later(monkeypatch, 336)
    assert renewed(made)
    assert not renewed(made)


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of another CA."""
    return make_certificates(tmp_path_factory.mktemp("another"), HOSTS).ca.parent


@pytest.mark.parametrize("names", [("server.pem",), ("server.key",), ("server.pem", "server.key")])
@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_certificate_is_renewed_if_a_file_is_broken(
    tmp_path: Path, another: Path, content: bytes | None, names: tuple[str, ...]
) -> None:
    made = make_certificates(tmp_path, HOSTS)
    for name in names:
        (tmp_path / name).write_bytes((another / name).read_bytes() if content is None else content)
    make_certificates(tmp_path, HOSTS)
    shake_hands(made, made.ca, "localhost")


@pytest.mark.parametrize("name", ["ca.pem", "ca.key"])
@pytest.mark.parametrize("content", [b"nonsense", None])
def test_a_ca_of_no_use_is_never_replaced(tmp_path: Path, another: Path, name: str, content: bytes | None) -> None:
    made = make_certificates(tmp_path, HOSTS)
    (tmp_path / name).write_bytes(content or (another / name).read_bytes())
    before = contents(made)
    with pytest.raises(OffbeatError, match=r"must be made, but .* give all clients the new ca\.pem"):
        make_certificates(tmp_path, ["more.example"])
    assert contents(made) == before


def test_a_certificate_does_not_outlive_its_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificates(tmp_path, HOSTS)
    later(monkeypatch, 3600)
    assert renewed(made)
    assert load(made.certificate).not_valid_after_utc == load(made.ca).not_valid_after_utc
    later(monkeypatch, 40)
    with pytest.raises(OffbeatError, match="ends on"):
        make_certificates(tmp_path, HOSTS)


@pytest.mark.parametrize(
    "host",
    ["", "localhost:8443", "https://localhost", "localhost/v1", "a b", "müller.example", "a..b", "a" * 64, "a\n"],
)
def test_a_malformed_host_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(OffbeatError, match="neither a host's name nor an IP address"):
        make_certificates(tmp_path, ["localhost", host])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_and_no_host_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("not a folder")
    assert "cannot use the folder" in error_line(make_certificates, tmp_path / "tls", ["localhost"])
    assert "needs a host" in error_line(make_certificates, tmp_path, [])


def test_the_fingerprint_is_what_openssl_shows(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, HOSTS)
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(made.ca.read_text())).hexdigest().upper()
    assert fingerprint(made.ca) == ":".join(digest[place : place + 2] for place in range(0, 64, 2))


def test_a_certificate_of_the_users_is_checked(tmp_path, monkeypatch):
    one, two = (make_certificates(tmp_path / name, ["localhost"]) for name in ("one", "two"))
    certificates.check_certificate(one.certificate, one.key)
    key = serialization.load_pem_private_key(one.key.read_bytes(), password=None)
    encrypted, junk = tmp_path / "encrypted.key", tmp_path / "junk.pem"
    protection = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    encrypted.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, protection))
    junk.write_text("junk")
    for certificate, key_path, message in (
        (tmp_path / "none.pem", one.key, "service.certificate: cannot read .*none.pem: No such file"),
        (one.certificate, tmp_path / "none.key", "service.key: cannot read .*none.key: No such file"),
        (junk, one.key, "service.certificate: .* does not hold a certificate"),
        (one.certificate, junk, "service.key: .* does not hold a private key"),
        (one.certificate, encrypted, "service.key: .* is encrypted: decrypt it"),
        (one.certificate, two.key, "service.certificate: .*server.pem is not for the key"),
    ):
        assert re.search(message, error_line(certificates.check_certificate, certificate, key_path))
    real = certificates._now()
    for days in (-3, 500):
        monkeypatch.setattr(certificates, "_now", lambda days=days: real + timedelta(days=days))
        line = error_line(certificates.check_certificate, one.certificate, one.key)
        assert re.search(r"valid from \d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d: renew it", line)
