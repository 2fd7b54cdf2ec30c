"""The live page and its events."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from offbeat.service.engine.service import Service
from offbeat.service.http.event_stream import EventStream
from offbeat.service.http.page_files import PageFiles
from offbeat.service.http.request_parts import Admin, Text, bearer_token
from offbeat.service.live.viewers import Viewers
from offbeat.service.refusal import Refusal


def add_live_routes(app: FastAPI, service: Service, viewers: Viewers) -> None:
    """Add the live page and its events to an application.

    The page itself holds no data of the run, so it needs no token.
    """
    files = PageFiles()

    @app.get("/", include_in_schema=False)
    async def page(if_none_match: Text = None) -> Response:
        """Return the live page."""
        return _found(files.answer("index.html", if_none_match))

    @app.get("/live/{name}", include_in_schema=False)
    async def page_file(name: str, if_none_match: Text = None) -> Response:
        """Return a file of the live page."""
        return _found(files.answer(name, if_none_match))

    @app.get("/v1/admin/events", include_in_schema=False)
    async def events(request: Request, _: Admin, last_event_id: Text = None) -> Response:
        """Send the run's state as server-sent events."""
        token = bearer_token(request) or ""
        return EventStream(viewers, last_event_id or "", lambda: service.accounts.is_valid(token, "admin"))


def _found(answer: Response | None) -> Response:
    if answer is None:
        raise Refusal("not-found", "the live page has no such file: open / instead")
    return answer
