"""Errors of requests: no answer, or a refusal."""

from http import HTTPStatus

import httpx
from offbeat_core.errors import OffbeatError
from offbeat_core.messages import Problem
from pydantic import ValidationError

LONGEST_WAIT = 3600.0
"""Seconds after which a client tries again at the latest; a proxy or a server may ask for any time."""

_LONGEST_LOCATION = 200
_SERVER_ERRORS = 500
_MOST_CHARACTERS = 1000


class UnreachableError(OffbeatError):
    """No answer came, or the connection broke; the next attempt may succeed."""


class ServiceError(OffbeatError):
    """The server refused a request.

    Attributes:
        status: The HTTP status.
        kind: The reason, for programs; empty if the answer is not an Offbeat server's.
        detail: The reason, for people.
        retry_after: Seconds after which to try again, if the server named them.
    """

    def __init__(self, request: str, status: int, kind: str, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{request}: {detail} ({status}{f' {kind}' if kind else ''})")
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after

    @property
    def may_pass(self) -> bool:
        """Return whether the same request may succeed later."""
        return self.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS) or self.status >= 500


def one_line(text: str) -> str:
    """Return the first line of a text from the network, for a terminal.

    It has at most 1,000 characters; a ? stands for one that could change the text around it.
    """
    first = text.split("\n", 1)[0][:_MOST_CHARACTERS]
    return "".join(character if character.isprintable() else "?" for character in first)


def is_foreign(response: httpx.Response, content: bytes | bytearray) -> bool:
    """Return whether an answer is a redirect or a web page, which ours never is.

    The web page of an error that may pass is that of a proxy before the server.
    """
    is_page = response.status_code < _SERVER_ERRORS and content.lstrip()[:1] == b"<"
    return response.is_redirect or is_page or _needs_tls(response, content)


def _needs_tls(response: httpx.Response, content: bytes | bytearray) -> bool:
    """Return whether nginx, Apache or Caddy says that HTTP came to a port of HTTPS."""
    said = content[:_MOST_CHARACTERS]
    return response.status_code == HTTPStatus.BAD_REQUEST and (b"HTTPS" in said or b"SSL-enabled" in said)


def other_program(response: httpx.Response, content: bytes | bytearray) -> str:
    """Return what to do about an answer that is not ours."""
    if response.is_redirect:
        location = one_line(response.headers.get("Location", ""))
        return f"it redirects to {location[:_LONGEST_LOCATION]}; check the URL, or log in to the network first"
    if _needs_tls(response, content):
        return "its port takes HTTPS alone: write https://"
    if is_foreign(response, content):
        return "it is a web page; check host, port and proxy, or log in to the network first"
    return "check the URL"


def read_refusal(request: str, response: httpx.Response) -> ServiceError:
    """Return the error for a refusal; ``request`` begins its message."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:  # a proxy's
        problem = Problem()
    detail = one_line(problem.detail) or response.reason_phrase
    if is_foreign(response, response.content):
        detail = f"{detail}, not an Offbeat server's answer: {other_program(response, response.content)}"
    try:
        retry_after = min(max(0.0, float(response.headers["Retry-After"])), LONGEST_WAIT)
    except (KeyError, ValueError):  # it may also be a date, which proxies send
        retry_after = None
    return ServiceError(request, response.status_code, problem.kind, detail, retry_after)
