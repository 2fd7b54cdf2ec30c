"""The page of all runs and sites: its files, and its data."""

import time

from fastapi import FastAPI
from fastapi.responses import Response

from offbeat.service.hosting.host_service import HostService
from offbeat.service.http.admin_routes import After
from offbeat.service.http.authentication import Viewer
from offbeat.service.http.live_routes import SITES_ON_A_PAGE, PageFiles, snapshot_response
from offbeat.service.http.request_parts import Text
from offbeat.service.live.run_history import RunHistory
from offbeat.service.live.snapshots import Snapshots


def add_page_routes(app: FastAPI, service: HostService, files: PageFiles) -> None:
    """Add the page, which needs no token, and its data to an application."""
    snapshots = Snapshots(
        lambda: service.status().model_dump(mode="json"),
        lambda after: service.sites(after, SITES_ON_A_PAGE).model_dump_json(),
        RunHistory(),  # runs have histories, the server has none
        time.time,
        service.home.log_writer.wait_until_durable,
    )

    @app.get("/", include_in_schema=False)
    async def page(if_none_match: Text = None) -> Response:
        """Return the page of all runs."""
        return files.answer("host/index.html", if_none_match)

    @app.get("/live/{name}", include_in_schema=False)
    async def live_file(name: str, if_none_match: Text = None) -> Response:
        """Return a file that the page has in common with those of runs."""
        return files.answer(f"live/{name}", if_none_match)

    @app.get("/host/{name}", include_in_schema=False)
    async def page_file(name: str, if_none_match: Text = None) -> Response:
        """Return a file of the page."""
        return files.answer(f"host/{name}", if_none_match)

    @app.get("/v1/admin/live", include_in_schema=False)
    async def live(role: Viewer, after: After = None) -> Response:
        """Return the state of all runs, and the sites behind ``after``."""
        return snapshot_response(await snapshots.answer("", -1 if after is None else after, role=role))
