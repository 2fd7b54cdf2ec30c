"""Bodies that are JSON are small; whoever sends more is stopped before it is in memory."""

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.refusal import Refusal

_LARGEST_JSON = 2**16
_PATIENCE_SECONDS = 20.0


class BodyLimit:
    """An ASGI middleware that refuses bodies above 64 KiB, but for updates, which have a limit of their own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or scope["method"] == "PUT":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    message = await receive()
            except TimeoutError:
                await _answer(Refusal("too-slow", f"no body came for {_PATIENCE_SECONDS:g} s"), scope, receive, send)
                return
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > _LARGEST_JSON:
                refusal = Refusal("too-large", f"a body has at most {_LARGEST_JSON} bytes here, but for updates")
                await _answer(refusal, scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)


async def _answer(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    answer = JSONResponse(refusal.problem(), refusal.status, media_type="application/problem+json")
    await answer(scope, receive, send)
