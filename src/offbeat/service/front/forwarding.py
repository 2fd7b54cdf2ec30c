"""Requests that only the leader's application answers, passed on by a front.

They are enrolments, admins' requests and the live page.
"""

import asyncio
from collections.abc import Callable, Sequence

from offbeat_core.messages import LARGEST_PROBE
from offbeat_core.tokens import looks_like
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.accounts.token_forms import PREFIXES
from offbeat.service.front.front import Asks
from offbeat.service.internal.answers import Forwarded
from offbeat.service.internal.questions import LARGEST_FRONT_WEIGHT, Forward
from offbeat.service.refusal import Refusal

_AT_ONCE = LARGEST_FRONT_WEIGHT // 4 // (Forward.least_weight + LARGEST_PROBE)
_SECONDS = 10.0  # for a body to come
# Headers that end at the front.
_OF_CONNECTION = {"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"}


class Forwarding:
    """An ASGI application that answers as the leader's does; it raises ``Refusal``.

    There the path has the ``prefix``.
    """

    def __init__(self, leader: Asks, prefix: Callable[[], str] = str) -> None:
        self._leader = leader
        self._prefix = prefix
        self._room = asyncio.Semaphore(_AT_ONCE)  # of the connection; what exceeds it waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        headers = [(name, value) for name, value in Headers(scope=scope).items() if name not in _OF_CONNECTION]
        body = await _read(receive) if _has_token(headers) else b""  # a stranger's would be read for nothing
        try:
            question = Forward(
                method=scope["method"],
                path=self._prefix() + scope["path"],
                query=scope["query_string"].decode("latin-1"),
                headers=(*headers, ("content-length", str(len(body)))),
                peer=(scope.get("client") or ("",))[0],
            )
        except ValidationError:
            raise Refusal("malformed-request", "the request's address or headers are too long") from None
        question.body = body
        async with self._room:
            answer = await self._leader.ask(question)
        response = Response(answer.body, answer.status)
        response.raw_headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        await response(scope, receive, send)


def _has_token(headers: Sequence[tuple[str, str]]) -> bool:
    token = dict(headers).get("authorization", "").partition(" ")[2].strip()
    return any(looks_like(token, prefix) for prefix in PREFIXES.values())


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > LARGEST_PROBE:
                    raise Refusal("too-large", f"a body has at most {LARGEST_PROBE} bytes here, but for updates")
    except TimeoutError:
        raise Refusal("too-slow", f"the body did not come within {_SECONDS:g} s") from None
    return bytes(body)


async def forwarded(app: ASGIApp, asked: Forward) -> Forwarded:
    """Return an application's answer to a request that a front has passed on."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in asked.headers]
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "https",
        "path": asked.path,
        "raw_path": asked.path.encode(),
        "query_string": asked.query.encode("latin-1"),
        "root_path": "",
        "headers": headers,
        "client": (asked.peer, 0),
        "server": ("", None),
        "extensions": {},
    }
    exchange = _Exchange(asked.body)
    await app(scope, exchange.receive, exchange.send)
    answer = Forwarded(status=exchange.status, headers=tuple(exchange.headers))
    answer.body = bytes(exchange.body)
    return answer


class _Exchange:
    """A request that an application answers in memory."""

    def __init__(self, body: bytes) -> None:
        self.status = 500
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()
        self._asked: bytes | None = body

    async def receive(self) -> Message:
        if self._asked is not None:
            body, self._asked = self._asked, None
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.Event().wait()  # the front does not leave before the answer
        raise AssertionError

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message["headers"]
                if name.lower() not in (b"content-length", b"connection")
            ]
            return
        self.body += message.get("body", b"")
