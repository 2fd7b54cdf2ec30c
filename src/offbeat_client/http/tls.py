"""Failures of TLS: an untrusted certificate, or a port of the other scheme."""

import socket
import ssl
from collections.abc import Iterator

import httpx

_PROBE_SECONDS = 5.0
CLOCKS = "compare the clocks of client and server, or renew the certificate"
"""What to do about a certificate that is not valid yet, or no longer."""
_DATES = (9, 10)  # OpenSSL's codes for these
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")  # OpenSSL's, by version


def tls_problem(url: str, error: httpx.TransportError, *, may_probe: bool) -> str | None:
    """Return why no attempt at this URL can succeed and what to do; None if one may.

    ``may_probe`` allows a connection that finds out whether the port speaks TLS. It may take five seconds.
    """
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            remedy = "give the file of its CA with --ca" if cause.verify_code not in _DATES else CLOCKS
            return f"the certificate of {url} is not trusted ({error}): {remedy}"
        if isinstance(cause, ssl.SSLError) and cause.reason in _NOT_TLS:
            return f"the port of {url} does not speak TLS: write http:// if the connection is safe without"
    if may_probe and isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) and _speaks_tls(httpx.URL(url)):
        return f"the port of {url} speaks TLS: write https://"
    return None


def is_outside_its_dates(error: BaseException) -> bool:
    """Return whether the certificate was not valid yet, or no longer."""
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
