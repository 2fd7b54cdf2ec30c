"""Requests that are answered before their body has come."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class UnreadBody:
    """An ASGI middleware that says when a line ends with an answer: when it comes before all of the body did.

    The HTTP server reads no further, so it hangs up. A client that did not know would send its next request over a
    line that is just being closed (RFC 9112, section 9.3).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        whole = False

        async def seen() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or (message["type"] == "http.request" and not message.get("more_body", False))
            return message

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start" and not whole:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, seen, say)


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
