"""Measurement of the time until an answer begins."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offbeat.service.engine.metrics import Metrics


class RequestTimer:
    """An ASGI middleware that measures the seconds until an answer begins, by route.

    Args:
        app: The next application.
        metrics: Records the seconds.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        began = time.perf_counter()

        async def send_measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.seconds.labels(route).observe(time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, send_measured if scope["type"] == "http" else send)
