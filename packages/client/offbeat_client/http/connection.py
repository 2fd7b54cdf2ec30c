"""HTTP to the server: token, certificate, time limits, and retries.

These are exponential back-off with full jitter (Brooker, AWS blog, 2015).
"""

import logging
import random
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

import httpx
from offbeat_core.errors import OffbeatError
from offbeat_core.http.proxy import client_through, proxy_of, unreachable
from offbeat_core.http.service_errors import ServiceError, UnreachableError, other_program, read_refusal
from offbeat_core.http.tls import tls_problem, trust
from offbeat_core.messages import PROTOCOL, Answer, Request
from pydantic import ValidationError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts, and the number of attempts.

    Attributes:
        first_seconds: The longest wait after the first attempt; it doubles from one attempt to the next.
        largest_seconds: The longest wait of all.
        attempts: Largest number of attempts in a row without progress; None for any number, since a client cannot know
            how long the server stays offline.

    Examples:
        >>> backoff = Backoff(largest_seconds=300.0, attempts=20)  # waits less than an hour in all
    """

    first_seconds: float = 1.0
    largest_seconds: float = 30.0
    attempts: int | None = None

    def ending(self, attempts: int) -> "Backoff":
        """Return the same waits with at most so many attempts."""
        return replace(self, attempts=attempts if self.attempts is None else min(self.attempts, attempts))


class Attempts:
    """The attempts at one exchange."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failed = 0

    def failed(self, error: Exception, at_least_seconds: float = 0.0) -> None:
        """Wait before the next attempt; raise ``error`` if no attempt is left."""
        self._failed += 1
        if self._backoff.attempts is not None and self._failed >= self._backoff.attempts:
            raise error
        doublings = min(self._failed - 1, 60)
        longest = min(self._backoff.largest_seconds, self._backoff.first_seconds * 2**doublings)
        seconds = at_least_seconds + jitter(longest)
        _log.warning("%s; trying again in %.1f seconds", error, seconds)
        time.sleep(seconds)

    def progressed(self) -> None:
        """Record progress: the count begins again."""
        self._failed = 0


def jitter(seconds: float) -> float:
    """Return a random time up to ``seconds``, which does not affect any result."""
    return random.uniform(0.0, seconds)


_CONNECT_SECONDS = 10.0
_LARGEST_ANSWER = 2**24
_LARGEST_PROBLEM = 2**16

_Answer = TypeVar("_Answer", bound=Answer)


class _Options(TypedDict, total=False):
    json: Mapping[str, Any] | None
    content: Iterable[bytes]
    headers: Mapping[str, str]
    read_seconds: float
    redirect: str


class Connection:
    """Requests to one server.

    ``token`` and ``supports``, the client's abilities with commas between them, go with every request and may be
    changed later. ``ca`` is a file with the certificates to trust, None for those of the system; ``read_seconds`` is
    how long to wait for an answer, unless a request says otherwise.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        ca: Path | None = None,
        backoff: Backoff | None = None,
        read_seconds: float = 60.0,
        supports: str = "",
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.supports = supports
        self.ca = ca
        self.backoff = backoff or Backoff()
        self._read_seconds = read_seconds
        self._has_answered = False
        self._proxy = proxy_of(url)
        # Nothing is verified without TLS, and loading certificates takes time.
        verify = trust(ca, "--ca") if url.startswith("https:") else False
        self._http = client_through(self._proxy, verify=verify, timeout=_timeout(read_seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._http.close()

    def below(self, path: str) -> "Connection":
        """Return a connection to what lies below a path.

        Both share their sockets; only this one closes them.
        """
        below = copy(self)
        below.url += path
        return below

    def add_support(self, supports: str) -> None:
        """Name these abilities, too."""
        self.supports = ", ".join(dict.fromkeys(filter(None, (*self.supports.split(", "), *supports.split(", ")))))

    def ask(
        self,
        method: str,
        path: str,
        answer: type[_Answer],
        request: Request | None = None,
        *,
        wait_seconds: float = 0.0,
        backoff: Backoff | None = None,
    ) -> _Answer:
        """Return the server's answer; tries again where that may help.

        The server may take ``wait_seconds`` longer than usual; ``backoff`` replaces the connection's.
        """
        attempts = Attempts(backoff or self.backoff)
        body = None if request is None else request.model_dump(exclude_unset=True)
        while True:
            try:
                response = self.send(method, path, json=body, read_seconds=self._read_seconds + wait_seconds)
                return read_answer(response, answer)
            except UnreachableError as error:
                attempts.failed(error)
            except ServiceError as error:
                if not error.may_pass:
                    raise
                attempts.failed(error, error.retry_after or 0.0)

    def send(self, method: str, path: str, **options: Unpack[_Options]) -> httpx.Response:
        """Make one attempt and return the complete answer; see ``stream``.

        Raises:
            OffbeatError: The answer is too large.
        """
        with self.stream(method, path, **options) as response:
            complete = _complete(response, _LARGEST_ANSWER)
        if len(complete.content) > _LARGEST_ANSWER:
            raise OffbeatError(
                f"the server's answer to {method} {path} has more than {_LARGEST_ANSWER} bytes: check the URL"
            )
        return complete

    @contextmanager
    def stream(self, method: str, path: str, **options: Unpack[_Options]) -> Generator[httpx.Response]:
        """Make one attempt; the answer's body is read within the context, by ``iter_raw``.

        Other methods would decompress it, to any size. ``redirect`` is the ``ETag`` of what may be elsewhere: an answer
        with status 307 and this ``ETag`` is yielded, too.

        Raises:
            UnreachableError: No answer came, or the connection broke.
            ServiceError: The server refused.
        """
        headers = {
            "Offbeat-Supports": self.supports,
            **options.get("headers", {}),
            "Accept-Encoding": "identity",
            "Offbeat-Protocol": PROTOCOL,
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = _timeout(options.get("read_seconds", self._read_seconds))
        json, content = options.get("json"), options.get("content")
        with (
            self._transport_errors(),
            self._http.stream(
                method, self.url + path, json=json, content=content, headers=headers, timeout=timeout
            ) as response,
        ):
            self._has_answered = True
            redirects = response.status_code == HTTPStatus.TEMPORARY_REDIRECT and "redirect" in options
            # A network's login page redirects, too, but does not know what was asked for.
            if not (response.is_success or (redirects and response.headers.get("ETag") == options.get("redirect"))):
                raise read_refusal(f"{method} {path}", _complete(response, _LARGEST_PROBLEM))
            yield response

    @contextmanager
    def stream_elsewhere(self, url: str, headers: Mapping[str, str]) -> Generator[httpx.Response]:
        """GET what the server has elsewhere, without the token; else as ``stream``.

        Raises:
            OffbeatError: The server's own URL has TLS, and this one has not.
        """
        if self.url.startswith("https:") and not url.startswith("https:"):
            raise OffbeatError("the server sends its clients to a store without TLS: tell its operator")
        headers = {**headers, "Accept-Encoding": "identity"}
        with (
            self._transport_errors(),
            self._http.stream("GET", url, headers=headers, timeout=_timeout(self._read_seconds)) as response,
        ):
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise ServiceError("GET from the store", response.status_code, "", "the file is not so long")
            if not response.is_success:  # the next attempt gets another URL
                raise UnreachableError(f"the server's store of models answers with status {response.status_code}")
            yield response

    @contextmanager
    def _transport_errors(self) -> Generator[None]:
        try:
            yield
        except httpx.TransportError as error:
            if (problem := tls_problem(self.url, error, may_probe=not (self._has_answered or self._proxy))) is not None:
                raise OffbeatError(
                    problem if self._proxy is None else f"{problem}; called through {self._proxy}"
                ) from None
            raise unreachable(self.url, error, self._proxy) from error


def _complete(response: httpx.Response, most: int) -> httpx.Response:
    """Return an answer with its body as it was sent.

    It has somewhat more than ``most`` bytes if there are more.
    """
    content = bytearray()
    for part in response.iter_raw():
        content += part
        if len(content) > most:
            break
    return httpx.Response(
        response.status_code,
        headers={name: response.headers[name] for name in ("Retry-After", "Location") if name in response.headers},
        content=bytes(content),
        request=response.request,
        extensions=response.extensions,
    )


def read_answer(response: httpx.Response, answer: type[_Answer]) -> _Answer:
    """Return the message in an answer; an answer without content is an empty object."""
    try:
        return answer.model_validate_json(response.content or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if not first["loc"]:  # not a JSON object
        remedy = other_program(response, response.content)
        raise OffbeatError(f"{response.url} did not answer as an Offbeat server does: {remedy}")
    request = f"{response.request.method} {response.url.path}"
    where = ".".join(str(part) for part in first["loc"])
    raise OffbeatError(
        f"the server's answer to {request} is not understood ({where}: {first['msg']}): "
        "is this version of Offbeat as new as the server's?"
    )


def _timeout(read_seconds: float) -> httpx.Timeout:
    return httpx.Timeout(read_seconds, connect=_CONNECT_SECONDS)
