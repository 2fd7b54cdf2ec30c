"""Limits of JSON bodies in requests."""

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.refusal import Refusal

_LARGEST_JSON = 2**16
_MAX_SECONDS = 20.0  # for the whole body


class BodyLimit:
    """An ASGI middleware that limits the bodies of ``POST`` requests.

    It reads up to 64 KiB within 20 s. The body of a request that ``authenticate`` refuses is not read; ``answer``
    converts its refusal. Updates come by ``PUT`` and have their own limits.
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

        async def replay() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, replay, send)


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
