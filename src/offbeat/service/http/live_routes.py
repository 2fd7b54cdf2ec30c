"""The live page: its files, and the stream of events."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

import offbeat.web
from offbeat.service.engine.operations import Operations
from offbeat.service.http.authentication import Viewer
from offbeat.service.http.request_parts import Text, bearer_token
from offbeat.service.live.viewers import Viewers
from offbeat.service.refusal import Refusal

_SEND_SECONDS = 30.0  # a viewer that takes nothing for so long is gone


class EventStream(Response):
    """Sends events until the viewer leaves or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, viewers: Viewers, last_id: str, may_view: Callable[[], bool], role: str) -> None:
        # Proxies such as nginx would keep events back without the second header. The page shows what the role may do.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Offbeat-Role": role})
        del self.headers["Content-Length"]
        self._viewers = viewers
        self._events = viewers.events(last_id, may_view)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; ``busy`` if there are too many viewers."""
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


_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""The headers of each file: no script, style or request but the server's own."""


class _File:
    def __init__(self, content: bytes, media_type: str) -> None:
        self.content = content
        self.media_type = f"{media_type}; charset=utf-8"
        self.etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'


class PageFiles:
    """The files of ``offbeat.web`` that make up the live page, in memory."""

    def __init__(self) -> None:
        web = resources.files(offbeat.web)
        found = [*web.joinpath("live").iterdir(), web / "uplot.js", web / "uplot.css"]
        self._files = {path.name: _File(path.read_bytes(), _type(path.name)) for path in found if _type(path.name)}

    def answer(self, name: str, known: str | None = None) -> Response:
        """Return the answer with a file; ``known`` is the header ``If-None-Match``."""
        file = self._files.get(name)
        if file is None:
            raise Refusal("not-found", "the live page has no such file: open / instead")
        headers = {**HEADERS, "ETag": file.etag}
        if known == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)


def _type(name: str) -> str:
    return next((kind for suffix, kind in _TYPES.items() if name.endswith(suffix)), "")


def add_live_routes(app: FastAPI, service: Operations, viewers: Viewers) -> None:
    """Add the live page, which needs no token, and its events to an application."""
    files = PageFiles()

    @app.get("/", include_in_schema=False)
    async def page(if_none_match: Text = None) -> Response:
        """Return the live page."""
        return files.answer("index.html", if_none_match)

    @app.get("/live/{name}", include_in_schema=False)
    async def page_file(name: str, if_none_match: Text = None) -> Response:
        """Return a file of the live page."""
        return files.answer(name, if_none_match)

    @app.get("/v1/admin/events", include_in_schema=False)
    async def events(request: Request, role: Viewer, last_event_id: Text = None) -> Response:
        """Send the run's state as server-sent events."""
        token = bearer_token(request.scope) or ""
        return EventStream(viewers, last_event_id or "", lambda: service.accounts.is_valid(token, "viewer"), role)
