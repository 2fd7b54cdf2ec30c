"""Failures of TLS: an untrusted certificate, or a port of the other scheme."""

import socket
import ssl
from collections.abc import Iterator

import httpx

_PROBE_SECONDS = 5.0
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")  # OpenSSL's, by version


def tls_problem(url: str, error: httpx.TransportError, *, may_probe: bool) -> str | None:
    """Return why no attempt at this URL can succeed and what to do; None if one may.

    ``may_probe`` allows a connection that finds out whether the port speaks TLS. It may take five seconds.
    """
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {url} is not trusted ({error}): give the file of its CA with --ca"
        if isinstance(cause, ssl.SSLError) and cause.reason in _NOT_TLS:
            return f"the port of {url} does not speak TLS: write http:// if the connection is safe without"
    if may_probe and isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) and _speaks_tls(httpx.URL(url)):
        return f"the port of {url} speaks TLS: write https://"
    return None


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
