"""The routes by which admins see clients and control the run."""

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import FileResponse

from offbeat.service import server_messages
from offbeat.service.engine.service import Service
from offbeat.service.http.model_response import ModelResponse
from offbeat.service.http.request_parts import LARGEST_NUMBER, Admin, Number

_MOST_CLIENTS = 1000  # in one answer

After = Annotated[int | None, Query(ge=0, le=LARGEST_NUMBER)]
Limit = Annotated[int, Query(ge=1, le=_MOST_CLIENTS)]


def add_control_routes(app: FastAPI, service: Service) -> None:
    """Add the routes to an application."""
    _add_client_routes(app, service)
    _add_run_routes(app, service)


def _add_client_routes(app: FastAPI, service: Service) -> None:
    log_writer = service.engine.log_writer

    @app.get("/v1/admin/clients")
    async def clients(_: Admin, after: After = None, limit: Limit = 100) -> server_messages.ClientPage:
        """List clients, by number from the one after ``after``."""
        page = service.clients(-1 if after is None else after, limit)
        await log_writer.wait_until_durable()
        return page

    @app.post("/v1/admin/clients/{number}/rename", status_code=204)
    async def rename(_: Admin, number: Number, wanted: server_messages.NewName) -> None:
        """Give a client another name."""
        service.accounts.rename(number, wanted.name)
        await log_writer.wait_until_durable()


def _add_run_routes(app: FastAPI, service: Service) -> None:
    control, models = service.control, service.engine.models

    @app.post("/v1/admin/pause")
    async def pause(_: Admin) -> server_messages.Paused:
        """Give out no more work; updates of visits under way count."""
        await control.pause()
        return server_messages.Paused(paused=True)

    @app.post("/v1/admin/resume")
    async def resume(_: Admin) -> server_messages.Paused:
        """Give out work again."""
        await control.resume()
        return server_messages.Paused(paused=False)

    @app.post("/v1/admin/extend")
    async def extend(_: Admin, wanted: server_messages.Extension) -> server_messages.Extended:
        """Let the run end at a later version; a finished run goes on."""
        await control.extend(wanted.versions)
        return server_messages.Extended(stop_versions=service.stop_versions, finished=service.engine.run.is_finished)

    @app.get("/v1/admin/model", response_class=FileResponse)
    async def model(_: Admin) -> FileResponse:
        """Download the newest version of the model."""
        version = max(models.versions())
        name = f"{service.engine.coordinator.algorithm.name}-{version}.safetensors"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return ModelResponse(models, version, headers)
