"""Refusals: the helper's answers to batches that it does not open."""

from http import HTTPStatus

KINDS: dict[str, int] = {
    # The request.
    "malformed-request": 400,
    "no-token": 401,
    "unknown-token": 401,
    "not-found": 404,
    "method-not-allowed": 405,
    "too-slow": 408,
    "too-large": 413,
    # The batch.
    "rolled-back": 409,  # the helper has stopped
    "wrong-number": 409,
    "other-batch": 409,
    "answer-erased": 410,
    "too-few-clients": 422,
    "too-many-clients": 422,
    "client-twice": 422,
    "malformed-record": 422,
    # A record, whose client is named.
    "wrong-run": 422,
    "wrong-terms": 422,
    "wrong-epoch": 422,
    "unknown-client": 422,
    "wrong-signature": 422,
    "version-ahead": 422,
    "wrong-head": 422,
    "visit-opened": 422,
    "start-version-opened": 422,
    "other-model": 422,
    "participations-spent": 422,
    "epsilon-spent": 422,
    "too-soon": 422,
    "sealed-wrongly": 422,
    # The helper's machine: the same request may succeed later.
    "no-space": 503,
}
"""The HTTP status of each kind of refusal, as in ``docs/privacy/helper.md``."""

# Python's phrases for these are older than RFC 9110 until 3.13.
_TITLES = {413: "Content Too Large", 422: "Unprocessable Content"}


class HelperRefusal(Exception):  # noqa: N818 — as the service's Refusal
    """The refusal of a request; nothing was opened.

    Nothing has changed, unless the kind is ``rolled-back``: then the helper has stopped.

    ``kind``, a key of ``KINDS``, is for programs; ``detail`` is one line for people that says what to do. ``client`` is
    the key of the client whose record is refused, None if the reason is not a single record.
    """

    def __init__(self, kind: str, detail: str, client: bytes | None = None) -> None:
        super().__init__(kind, detail, client)
        self.kind = kind
        self.detail = detail
        self.client = client
        self.status = KINDS[kind]

    def __str__(self) -> str:
        return self.detail

    def problem(self) -> dict[str, str | int]:
        """Return the answer's body, ``application/problem+json``."""
        title = _TITLES.get(self.status) or HTTPStatus(self.status).phrase
        problem: dict[str, str | int] = {
            "title": title,
            "status": self.status,
            "kind": self.kind,
            "detail": self.detail,
        }
        return problem if self.client is None else {**problem, "client": self.client.hex()}
