"""Refusals: the server's answers to requests that it does not carry out."""

import errno
from collections.abc import Mapping
from http import HTTPStatus

_BY_STATUS = {
    400: "malformed-request login-failed",
    401: "no-token unknown-token expired-token revoked-token",
    403: "foreign-token",
    404: "no-such-version no-such-visit no-such-evaluation no-such-client no-such-token no-such-run not-found",
    405: "method-not-allowed",
    408: "too-slow",
    409: "wrong-offset other-upload stale-share full cannot-extend cannot-grow run-exists",
    411: "length-required",
    413: "too-large",
    416: "wrong-range",
    422: (
        "wrong-digest malformed-update wrong-shape wrong-type not-finite norm-too-large wrong-version wrong-plan "
        "no-examples wrong-examples too-many-examples lost-memory no-loss not-supported wrong-share share-needed "
        "no-share"
    ),
    429: "too-many-requests",
    503: "busy no-space stopping",
}
KINDS = {kind: status for status, kinds in _BY_STATUS.items() for kind in kinds.split()}
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


def unwritable(problem: str) -> Refusal:
    """Return the refusal for a log that cannot be written."""
    detail = f"the server's log cannot be written ({problem}): its operator must mend that, or free space; try later"
    return Refusal("no-space", detail, {"Retry-After": "5"})


def no_space(problem: OSError | str) -> Refusal:
    """Return the refusal for a disk that is full, or for too many open files."""
    if isinstance(problem, OSError) and is_descriptor_shortage(problem):
        return Refusal("busy", "the server has too many files open: try again later", {"Retry-After": "5"})
    reason = problem if isinstance(problem, str) else problem.strerror or str(problem) or "no space left"
    detail = f"the server's disk cannot be written ({reason}): its operator must free space; try again later"
    return Refusal("no-space", detail, {"Retry-After": "5"})
