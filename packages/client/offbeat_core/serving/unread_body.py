"""Connections of requests whose body is left unread."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class UnreadBody:
    """An ASGI middleware that closes connections whose request body is left unread.

    It adds ``Connection: close`` to an answer that comes before the end of the body.

    The HTTP server closes the connection without reading the rest. Without the header a client would send its next
    request over the closing connection (RFC 9112, section 9.3).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        is_complete = False

        async def watched_receive() -> Message:
            nonlocal is_complete
            message = await receive()
            is_complete = is_complete or (message["type"] == "http.request" and not message.get("more_body", False))
            return message

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_complete:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, watched_receive, send_with_header)


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
