"""Denials that hold after a kill, and by a server that may have been replaced."""

from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.refusal import Refusal


class ConfirmedDenials:
    """An ASGI middleware that holds back answers from 400 to 499.

    They are sent once all rows so far are durable, and a shared log has shown that no other server leads.

    What a server says of durable rows is true of every longer log. That it knows no such token or visit is not: a later
    leader may have made it, or a kill may take back the row that ended it, and the client would give up for good.

    Args:
        app: The application.
        confirm: Raises ``Refusal`` if a denial may not hold.
        answer: Makes the answer of a refusal.
    """

    def __init__(
        self, app: ASGIApp, confirm: Callable[[], Awaitable[None]], answer: Callable[[Refusal], Response]
    ) -> None:
        self._app = app
        self._confirm = confirm
        self._answer = answer

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request."""
        is_withdrawn = False

        async def send_confirmed(message: Message) -> None:
            nonlocal is_withdrawn
            if is_withdrawn:
                return
            if message["type"] == "http.response.start" and 400 <= message["status"] < 500:
                try:
                    await self._confirm()
                except Refusal as refusal:
                    is_withdrawn = True
                    await self._answer(refusal)(scope, receive, send)
                    return
            await send(message)

        return self._app(scope, receive, send_confirmed if scope["type"] == "http" else send)
