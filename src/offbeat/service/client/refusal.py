"""Why a request got no answer that it can go on with."""

import httpx

from offbeat.errors import OffbeatError


class UnreachableError(OffbeatError):
    """No answer came, or it broke off; the next attempt may succeed."""


class ServiceError(OffbeatError):
    """The server refused a request.

    Attributes:
        status: The HTTP status.
        kind: What is wrong, for programs; empty if the answer is not of an Offbeat server.
        detail: What is wrong, for people.
        retry_after: Seconds after which to try again, if the server said so.
    """

    def __init__(self, request: str, status: int, kind: str, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{request}: {detail} ({status}{f' {kind}' if kind else ''})")
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status == 429 or self.status >= 500


def read_refusal(request: str, response: httpx.Response) -> ServiceError:
    """Return what an answer with an error's status says; ``request`` is what people will read of the request."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    detail = str(problem.get("detail") or response.reason_phrase).splitlines()[0]
    try:
        retry_after = max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):  # It may also be a date, which proxies send.
        retry_after = None
    return ServiceError(request, response.status_code, str(problem.get("kind", "")), detail, retry_after)
