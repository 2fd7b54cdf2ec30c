"""The answer with server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offbeat.service.live.viewers import Viewers

_SEND_SECONDS = 30.0  # a viewer that takes nothing for so long is gone


class EventStream(Response):
    """Sends the viewers' events until the viewer leaves or the server stops.

    Args:
        viewers: The viewers, of whose places it takes one.
        last_id: The id of the last event that the viewer has; empty for none.
        may_view: Returns whether the viewer's token is still valid.
    """

    media_type = "text/event-stream"

    def __init__(self, viewers: Viewers, last_id: str, may_view: Callable[[], bool]) -> None:
        # Proxies such as nginx would keep events back without the last header.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["Content-Length"]
        self._viewers = viewers
        self._events = viewers.events(last_id, may_view)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events.

        Raises:
            Refusal: ``busy``: there are too many viewers; nothing has been sent.
        """
        with self._viewers.place():
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            tasks: list[asyncio.Task[Any]] = [
                asyncio.create_task(_send_all(self._events, send)),
                asyncio.create_task(_until_disconnect(receive)),
                asyncio.create_task(self._viewers.closed.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


async def _send_all(events: AsyncIterator[bytes], send: Send) -> None:
    async for event in events:
        async with asyncio.timeout(_SEND_SECONDS):
            await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
