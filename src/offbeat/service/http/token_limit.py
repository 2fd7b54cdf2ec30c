"""Limit of each token's requests under way."""

from collections.abc import Callable

from offbeat_core.serving.connections import counted
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from offbeat.service.http.request_parts import bearer_token
from offbeat.service.refusal import Refusal


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
        token = bearer_token(Request(scope)) if scope["type"] == "http" else None
        if token is None:
            await self._app(scope, receive, send)
            return
        if self._under_way.get(token, 0) >= self._most:
            problem = f"{self._most} requests with this token are under way: wait until one has ended"
            await self._answer(Refusal("too-many-requests", problem, {"Retry-After": "1"}))(scope, receive, send)
            return
        with counted(self._under_way, token):
            await self._app(scope, receive, send)
