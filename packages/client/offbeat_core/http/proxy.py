"""The proxy that the environment names for a server, and its failures."""

import ipaddress
import os
from dataclasses import dataclass
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import UnreachableError

_NO_PASSWORD = "407"
_LAST_PORT = 65_535
_SYSTEM = "the system's settings"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and the variable that names it."""

    url: httpx.URL
    variable: str

    def __str__(self) -> str:
        """Return the address, without a password, and the variable."""
        return f"the proxy {self.url.scheme}://{self.url.netloc.decode('ascii')} ({self.variable})"


def proxy_of(server: str) -> Proxy | None:
    """Return the proxy that the environment names for a server; None for none."""
    try:
        target = httpx.URL(server)
    except httpx.InvalidURL:
        target = httpx.URL()
    if target.userinfo:
        raise OffbeatError("the server's URL has a name or a password, which no server takes: write https://host:port")
    if target.scheme not in ("http", "https") or not target.host or (target.port or 0) > _LAST_PORT:
        raise OffbeatError(f"{server!r} is not the URL of a server: write https://host:port")
    if proxy_bypass(target.host) or proxy_bypass(target.netloc.decode("ascii")):
        return None
    found = getproxies()
    kind = next((kind for kind in (target.scheme, "all") if found.get(kind)), None)
    if kind is None:
        return None
    names = (f"{kind}_proxy", f"{kind.upper()}_PROXY")  # of both the first counts
    variable, address = next((name for name in names if os.environ.get(name)), _SYSTEM), found[kind]
    try:
        return Proxy(httpx.URL(address if "://" in address else f"http://{address}"), variable)
    except httpx.InvalidURL as error:
        raise _unusable(variable, error) from None


def client_through(proxy: Proxy | None, **options: Any) -> httpx.Client:
    """Return an HTTP client that calls through a proxy, or directly."""
    try:
        return httpx.Client(proxy=None if proxy is None else proxy.url, trust_env=False, **options)
    except (ValueError, ImportError) as error:
        if proxy is None:
            raise
        raise _unusable(proxy.variable, error) from None


def unreachable(server: str, error: httpx.TransportError, proxy: Proxy | None) -> OffbeatError:
    """Return the error for a request that got no answer.

    It is an ``UnreachableError`` if another attempt may succeed.
    """
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, httpx.RemoteProtocolError):
        reason += "; if this goes on, check the port, which may be another program's"
    if proxy is None:
        return UnreachableError(f"{server} cannot be reached: {reason}")
    if isinstance(error, httpx.ProxyError) and str(error).startswith(_NO_PASSWORD):
        return OffbeatError(
            f"{proxy} asks for a name and a password: write {proxy.variable}=http://NAME:PASSWORD@host:port"
        )
    host = httpx.URL(server).host
    where = "this machine's server" if _is_loopback(host) else "it"
    remedy = f"correct {proxy.variable}, or set NO_PROXY={host} to call {where} directly"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return UnreachableError(f"{proxy} to {server} cannot be reached: {reason}; {remedy}")
    return UnreachableError(f"{server} cannot be reached through {proxy}: {reason}; {remedy}")


def _unusable(variable: str, error: Exception) -> OffbeatError:
    return OffbeatError(f"the proxy in {variable} cannot be used ({error}): write http://host:port")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
