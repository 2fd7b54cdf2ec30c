"""Requests that only the leader's application answers, passed on by a front.

They are enrolments, admins' requests and the live page.
"""

import asyncio

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.front.front import Asks
from offbeat.service.internal.answers import Forwarded
from offbeat.service.internal.questions import Forward
from offbeat.service.refusal import Refusal

_SECONDS = 10.0  # for a body to come, and for events to happen
_OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "upgrade"}  # headers that end at the front


class Forwarding:
    """An ASGI application that answers as the leader's does; it raises ``Refusal``."""

    def __init__(self, leader: Asks) -> None:
        self._leader = leader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        body = await _read(receive)
        headers = Headers(scope=scope).items()
        try:
            question = Forward(
                method=scope["method"],
                path=scope["path"],
                query=scope["query_string"].decode("latin-1"),
                headers=tuple((name, value) for name, value in headers if name not in _OF_CONNECTION),
                peer=(scope.get("client") or ("",))[0],
            )
        except ValidationError:
            raise Refusal("malformed-request", "the request's address or headers are too long") from None
        question.body = body
        answer = await self._leader.ask(question)
        response = Response(answer.body, answer.status)
        response.raw_headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        await response(scope, receive, send)


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            more = True
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > Forward.largest_body:
                    raise Refusal("too-large", f"a body has at most {Forward.largest_body} bytes here, but for updates")
    except TimeoutError:
        raise Refusal("too-slow", f"the body did not come within {_SECONDS:g} s") from None
    return bytes(body)


async def forwarded(app: ASGIApp, asked: Forward) -> Forwarded:
    """Return an application's answer to a request that a front has passed on.

    A stream of events ends with its first ones, or after some seconds without any: a browser asks for the next by
    itself, from where the last answer ended.
    """
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
    async with asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(exchange.close_after(_SECONDS))
        await app(scope, exchange.receive, exchange.send)
        closing.cancel()
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
        self._is_stream = False
        self._is_closed = asyncio.Event()

    async def receive(self) -> Message:
        if self._asked is not None:
            body, self._asked = self._asked, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._is_closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message["headers"]
                if name.lower() not in (b"content-length", b"connection")
            ]
            self._is_stream = "text/event-stream" in dict(self.headers).get("content-type", "")
            return
        self.body += message.get("body", b"")
        if self._is_stream and self.body:
            self._is_closed.set()

    async def close_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._is_closed.set()
