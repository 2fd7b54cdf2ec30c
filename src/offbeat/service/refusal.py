"""Refusals: the server's answers to requests that it does not carry out."""

import errno
from collections.abc import Mapping
from http import HTTPStatus

KINDS: dict[str, int] = {
    "malformed-request": 400,
    "no-token": 401,
    "unknown-token": 401,
    "expired-token": 401,
    "revoked-token": 401,
    "foreign-token": 403,
    "no-such-version": 404,
    "no-such-visit": 404,
    "no-such-evaluation": 404,
    "no-such-client": 404,
    "no-such-token": 404,
    "not-found": 404,
    "method-not-allowed": 405,
    "too-slow": 408,
    "wrong-offset": 409,
    "other-upload": 409,
    "stale-share": 409,
    "full": 409,
    "cannot-extend": 409,
    "length-required": 411,
    "too-large": 413,
    "wrong-range": 416,
    "wrong-digest": 422,
    "malformed-update": 422,
    "wrong-shape": 422,
    "wrong-type": 422,
    "not-finite": 422,
    "norm-too-large": 422,
    "wrong-version": 422,
    "wrong-plan": 422,
    "no-examples": 422,
    "wrong-examples": 422,
    "too-many-examples": 422,
    "lost-memory": 422,
    "no-loss": 422,
    "not-supported": 422,
    "wrong-share": 422,
    "share-needed": 422,
    "no-share": 422,
    "too-many-requests": 429,
    "busy": 503,
    "no-space": 503,
    "stopping": 503,
}
"""The HTTP status of each kind of refusal, as in ``docs/protocol.md``."""

# Python's phrases for these are older than RFC 9110 until 3.13.
_TITLES = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}


class Refusal(Exception):  # noqa: N818 — most are not errors
    """The refusal of a request.

    ``kind``, a key of ``KINDS``, is for programs; ``detail`` is one line for people that says what to do. The answer
    has the additional ``headers``.
    """

    def __init__(self, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(kind, detail, headers)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.status = KINDS[kind]

    def __str__(self) -> str:
        return self.detail

    def problem(self) -> dict[str, str | int]:
        """Return the answer's body, ``application/problem+json``."""
        title = _TITLES.get(self.status) or HTTPStatus(self.status).phrase
        return {"title": title, "status": self.status, "kind": self.kind, "detail": self.detail}


def is_descriptor_shortage(error: OSError) -> bool:
    """Return whether the process or the machine has too many open files, which passes."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def no_space(problem: OSError | str) -> Refusal:
    """Return the refusal for a disk that is full, or for too many open files."""
    if isinstance(problem, OSError) and is_descriptor_shortage(problem):
        return Refusal("busy", "the server has too many files open: try again later", {"Retry-After": "5"})
    reason = problem if isinstance(problem, str) else problem.strerror or "no space left"
    detail = f"the server's disk cannot be written ({reason}): its operator must free space; try again later"
    return Refusal("no-space", detail, {"Retry-After": "5"})
