"""Limits of requests: JSON bodies, and requests under way of a token."""

import asyncio
from collections.abc import Awaitable, Callable

from offbeat_core.serving.connections import counted
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.http.request_parts import bearer_token
from offbeat.service.refusal import Refusal

_LARGEST_JSON = 2**16
_MAX_SECONDS = 20.0  # for the whole body


class BodyLimit:
    """An ASGI middleware: bodies of ``POST`` requests have 64 KiB within 20 s.

    The body of a request that ``authenticate`` refuses is not read; ``answer`` converts its refusal. Updates come by
    ``PUT`` and have their own limits.
    """

    def __init__(
        self, app: ASGIApp, authenticate: Callable[[Scope], None], answer: Callable[[Refusal], Response]
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            self._authenticate(scope)
            body = await _read(receive)
        except Refusal as refusal:
            await self._answer(refusal)(scope, receive, send)
            return
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        def replay() -> Awaitable[Message]:
            return _at_once(left.pop()) if left else receive()

        await self._app(scope, replay, send)


async def _at_once(message: Message) -> Message:
    return message


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    # The client has left, or its chunks are malformed: Granian does not say which.
                    raise Refusal("malformed-request", "the body ends too early, or its chunks are malformed")
                body += message.get("body", b"")
                if len(body) > _LARGEST_JSON:
                    raise Refusal("too-large", f"a body has at most {_LARGEST_JSON} bytes here, but for updates")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Refusal("too-slow", f"the body did not come within {_MAX_SECONDS:g} s") from None


class TokenLimit:
    """An ASGI middleware that limits the requests under way of each token.

    Without it the unfinished requests of one token could take all connections of an address. ``answer`` converts the
    refusal of a request above ``most``; its body is not read.
    """

    def __init__(self, app: ASGIApp, most: int, answer: Callable[[Refusal], Response]) -> None:
        self._app = app
        self._most = most
        self._answer = answer
        self._under_way: dict[str, int] = {}  # by token, valid or not

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        token = bearer_token(scope) if scope["type"] == "http" else None
        if token is None:
            await self._app(scope, receive, send)
            return
        if self._under_way.get(token, 0) >= self._most:
            problem = f"{self._most} requests with this token are under way: wait until one has ended"
            await self._answer(Refusal("too-many-requests", problem, {"Retry-After": "1"}))(scope, receive, send)
            return
        with counted(self._under_way, token):
            await self._app(scope, receive, send)
