"""Requests to a provider, with limits of size and time."""

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import httpx
from offbeat_core.http.service_errors import one_line
from offbeat_core.http.tls import trust

from offbeat.service.login.login_errors import ProviderError

LARGEST_ANSWER = 2**18  # bytes
SECONDS = 10.0  # for one request
_PAUSE_SECONDS = 5.0  # after a failure, in which the provider is not asked again

T = TypeVar("T")


class BoundedFetch:
    """Asks for JSON: at most 256 KiB within 10 s, without redirects."""

    def __init__(self) -> None:
        self._tls: ssl.SSLContext | None = None  # takes long to make

    async def __call__(
        self, url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON object of an answer; a ``form`` goes by POST.

        Raises:
            ProviderError: There is no answer, or one with status 200 is not JSON.
        """
        if self._tls is None:
            self._tls = await asyncio.to_thread(trust, None, "SSL_CERT_FILE")
        method = "GET" if form is None else "POST"
        # Compressed, a few bytes could become any number.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        try:
            async with (
                asyncio.timeout(SECONDS),
                httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=SECONDS) as client,
                client.stream(method, url, data=form, headers=headers) as response,
            ):
                content = await _read(response)
                return response.status_code, _json_object(content, may_be_other=response.status_code != 200)
        except TimeoutError:
            raise ProviderError(f"{url} does not answer within {SECONDS:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ProviderError(f"{url}: {one_line(str(error) or type(error).__name__)}") from None
        except ValueError as error:
            raise ProviderError(f"{url} answers wrongly: {error}") from None


async def _read(response: httpx.Response) -> bytes:
    content = bytearray()
    async for part in response.aiter_raw():
        content += part
        if len(content) > LARGEST_ANSWER:
            raise ValueError(f"more than {LARGEST_ANSWER} bytes")
    return bytes(content)


def _json_object(content: bytes, *, may_be_other: bool) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if may_be_other:  # the page of an error
        return {}
    raise ValueError("not a JSON object")


class Kept(Generic[T]):
    """A value that ``load`` fetches, kept for some seconds.

    One request at a time loads it. For five seconds after a failure all others fail at once.
    """

    def __init__(
        self, load: Callable[[], Awaitable[T]], seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._seconds = seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._until = -1.0  # when the value is too old
        self._failure: tuple[float, ProviderError] | None = None

    async def get(self, other_than: T | None = None) -> T:
        """Return the value; fetch it again if it is still ``other_than``."""
        async with self._lock:
            now = self._clock()
            if self._value is not None and self._value is not other_than and now < self._until:
                return self._value
            if self._failure is not None and now < self._failure[0] + _PAUSE_SECONDS:
                raise self._failure[1]
            try:
                self._value = await self._load()
            except ProviderError as error:
                self._failure = self._clock(), error
                raise
            self._until, self._failure = self._clock() + self._seconds, None
            return self._value
