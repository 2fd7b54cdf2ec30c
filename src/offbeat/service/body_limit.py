"""Bodies that are JSON are small; whoever sends more is stopped before it is in memory."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.refusal import Refusal

_LARGEST_JSON = 2**16


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
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > _LARGEST_JSON:
                refusal = Refusal("too-large", f"a body has at most {_LARGEST_JSON} bytes here, but for updates")
                answer = JSONResponse(refusal.problem(), refusal.status, media_type="application/problem+json")
                await answer(scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)
