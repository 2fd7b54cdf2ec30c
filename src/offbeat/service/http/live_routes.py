"""The live page: its files, and its data."""

import hashlib
import html
from collections.abc import Mapping
from functools import partial
from importlib import resources
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import Response

import offbeat.web
from offbeat.service import server_messages
from offbeat.service.audit.audit_log import start_facts
from offbeat.service.engine.operations import Operations
from offbeat.service.http.admin_routes import After, Limit
from offbeat.service.http.authentication import Admin, Operator, Viewer
from offbeat.service.http.request_parts import Number, Text
from offbeat.service.live.live_state import live_state
from offbeat.service.live.logged_history import audit_page, site_history
from offbeat.service.live.snapshots import Snapshots
from offbeat.service.refusal import Refusal

SITES_ON_A_PAGE = 50
Since = Annotated[str, Query(max_length=64)]

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
    """The files of a run's page and of the page of all runs, in memory.

    ``links`` are the addresses of links in the pages that are hidden without one, by their ids.
    """

    def __init__(self, links: Mapping[str, str | None]) -> None:
        web = resources.files(offbeat.web)
        found = [(f"{folder}/{path.name}", path) for folder in ("live", "host") for path in (web / folder).iterdir()]
        found += [(f"live/{name}", web / name) for name in ("uplot.js", "uplot.css")]
        self._files = {name: _File(path.read_bytes(), _type(name)) for name, path in found if _type(name)}
        for page in ("live/index.html", "host/index.html"):
            content = self._files[page].content
            for name, address in links.items():
                if address is not None:
                    link = f'<a id="{name}" href="{html.escape(address)}">'.encode("ascii")
                    content = content.replace(f'<a id="{name}" hidden>'.encode("ascii"), link)
            self._files[page] = _File(content, "text/html")

    def answer(self, name: str, known: str | None = None) -> Response:
        """Return the answer with a file, ``live/start.js`` for instance.

        ``known`` is the header ``If-None-Match``.
        """
        file = self._files.get(name)
        if file is None:
            raise Refusal("not-found", "the live page has no such file: open / instead")
        headers = {**HEADERS, "ETag": file.etag}
        if known == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)


def _type(name: str) -> str:
    return next((kind for suffix, kind in _TYPES.items() if name.endswith(suffix)), "")


def snapshot_response(snapshot: bytes) -> Response:
    """Return the response with a page's data."""
    return Response(snapshot, media_type="application/json", headers={"Cache-Control": "no-store"})


def add_live_routes(app: FastAPI, service: Operations, login: str | None = None) -> None:
    """Add the live page, which needs no token, and its data to an application.

    ``login`` is the address at which people log in; None if they have tokens only.
    """
    files, engine = PageFiles({"log-in": login}), service.engine
    snapshots = Snapshots(
        partial(live_state, service),
        lambda after: service.clients(after, SITES_ON_A_PAGE).model_dump_json(),
        engine.run.history,
        lambda: engine.run.now,
        engine.log_writer.wait_until_durable,
    )

    @app.get("/", include_in_schema=False)
    async def page(if_none_match: Text = None) -> Response:
        """Return the live page."""
        return files.answer("live/index.html", if_none_match)

    @app.get("/live/{name}", include_in_schema=False)
    async def page_file(name: str, if_none_match: Text = None) -> Response:
        """Return a file of the live page."""
        return files.answer(f"live/{name}", if_none_match)

    @app.get("/v1/admin/live", include_in_schema=False)
    async def live(role: Viewer, since: Since = "", after: After = None) -> Response:
        """Return the run's state, sites behind ``after``, and the history since an answer."""
        return snapshot_response(await snapshots.answer(since, -1 if after is None else after, role=role))

    @app.get("/v1/admin/clients/{number}/history")
    async def history(_: Viewer, number: Number) -> server_messages.SiteHistory:
        """Return a client's newest updates and evaluations."""
        return await site_history(service, number)

    @app.get("/v1/admin/settings")
    async def settings(_: Viewer) -> server_messages.RunSettings:
        """Return the run's settings."""
        return server_messages.RunSettings(**start_facts(service.settings))

    @app.get("/v1/admin/log")
    async def lines(_: Operator, before: After = None, limit: Limit = 50) -> server_messages.LoggedPage:
        """Return lines of the log since the server's start, the last one first."""
        return service.lines.page(before, limit)

    @app.get("/v1/admin/audit")
    async def audit(_: Admin, before: After = None, limit: Limit = 50) -> server_messages.LoggedPage:
        """Return entries of the audit log, the last one first."""
        return await audit_page(service, before, limit)
