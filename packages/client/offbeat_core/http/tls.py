"""TLS: the certificates to trust, and its failures."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_text

_PROBE_SECONDS = 5.0
CLOCKS = "compare the clocks of client and server, or renew the certificate"
"""What to do about a certificate that is not valid yet, or no longer."""
_DATES = (9, 10)  # OpenSSL's codes for these
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")  # OpenSSL's, by version


def trust(ca: Path | None, setting: str) -> ssl.SSLContext:
    """Return a context that trusts the certificates in a PEM file.

    Trusts those of the system if it is None. ``setting`` names the file in errors.
    """
    try:
        if ca is None:
            return ssl.create_default_context()
        # OpenSSL reads neither an editor's mark before the first line nor UTF-16; comments may have any letters.
        return ssl.create_default_context(cadata=read_text(ca).encode("ascii", "ignore").decode())
    except UnicodeDecodeError:
        reason = "it is not text"
    except ssl.SSLError:
        reason = "it has no certificate"
    except OSError as error:
        reason = str(error.strerror)
    raise OffbeatError(f"cannot read the certificates in {ca}: {reason}; {setting} is a PEM file")


def tls_problem(url: str, error: httpx.TransportError, *, may_probe: bool, setting: str = "--ca") -> str | None:
    """Return why no attempt at this URL can succeed and what to do; None if one may.

    ``may_probe`` allows a connection that finds out whether the port speaks TLS. It may take five seconds.
    ``setting`` names the certificates to trust.
    """
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            remedy = f"give the file of its CA with {setting}" if cause.verify_code not in _DATES else CLOCKS
            return f"the certificate of {url} is not trusted ({error}): {remedy}"
        if isinstance(cause, ssl.SSLError) and cause.reason in _NOT_TLS:
            return f"the port of {url} does not speak TLS: write http:// if the connection is safe without"
    if isinstance(error, httpx.RemoteProtocolError) and "illegal" in str(error):
        return f"the port of {url} does not speak HTTP: it is another program's, check the port"
    if may_probe and isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) and _speaks_tls(httpx.URL(url)):
        return f"the port of {url} speaks TLS: write https://"
    return None


def is_outside_its_dates(error: BaseException) -> bool:
    """Return whether the certificate is not valid yet, or has expired."""
    return any(isinstance(one, ssl.SSLCertVerificationError) and one.verify_code in _DATES for one in _causes(error))


def _speaks_tls(url: httpx.URL) -> bool:
    """Return whether a port that was called without TLS answers a TLS handshake."""
    if url.scheme != "http":
        return False
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent after the handshake
    try:
        with socket.create_connection((url.host, url.port or 80), _PROBE_SECONDS) as connection:
            context.wrap_socket(connection, server_hostname=url.host).close()
    except OSError:
        return False
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
