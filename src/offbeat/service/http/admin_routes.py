"""The routes for admins, their programs and probes, as in ``docs/protocol.md``."""

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import Response

from offbeat.service import server_messages
from offbeat.service.accounts.issued_tokens import token_id as id_of
from offbeat.service.engine.operations import Operations
from offbeat.service.http.authentication import Admin
from offbeat.service.http.request_parts import LARGEST_NUMBER, Number

_MOST_CLIENTS = 1000  # in one answer

After = Annotated[int | None, Query(ge=0, le=LARGEST_NUMBER)]
Limit = Annotated[int, Query(ge=1, le=_MOST_CLIENTS)]


def add_admin_routes(app: FastAPI, service: Operations) -> None:
    """Add the routes for admins to an application."""
    _add_token_routes(app, service)
    _add_client_routes(app, service)
    _add_run_routes(app, service)

    @app.get("/v1/status")
    async def status(_: Admin) -> server_messages.Status:
        """Return the progress of the run."""
        status = service.status()
        await service.engine.log_writer.wait_until_durable()
        return status

    @app.get("/metrics")
    async def metrics(_: Admin) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(service.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/healthz")
    async def healthz() -> Response:
        """Answer as long as the server runs."""
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Return whether the server serves requests and can write to its disk.

        The answer also says what the run waits for, or why it does not make versions.
        """
        problem = service.engine.problem or (None if service.is_ready else "stopping")
        waits_for = service.waits_for()
        state = f"waits for {waits_for}" if waits_for else service.stalled() or "ok"
        return Response(f"{problem or state}\n", 503 if problem else 200, media_type="text/plain")


def _add_token_routes(app: FastAPI, service: Operations) -> None:
    issued, log_writer = service.accounts.issued, service.engine.log_writer

    @app.post("/v1/enrolment-tokens", status_code=201)
    async def make_token(_: Admin, wanted: server_messages.NewEnrolmentToken) -> server_messages.MadeToken:
        """Make a token that lets clients enrol."""
        token = issued.make("enrolment", uses=wanted.uses, seconds=wanted.expires_seconds, name=wanted.name)
        await log_writer.wait_until_durable()
        return server_messages.MadeToken(token=token, id=id_of(token))

    @app.post("/v1/admin-tokens", status_code=201)
    async def make_admin_token(_: Admin, wanted: server_messages.NewAdminToken) -> server_messages.MadeToken:
        """Make a token for an admin."""
        token = issued.make("admin", seconds=wanted.expires_seconds, name=wanted.name)
        await log_writer.wait_until_durable()
        return server_messages.MadeToken(token=token, id=id_of(token))

    @app.get("/v1/tokens")
    async def tokens(_: Admin) -> server_messages.Tokens:
        """List all enrolment and admin tokens."""
        listed = server_messages.Tokens(tokens=issued.infos())
        await log_writer.wait_until_durable()
        return listed

    @app.delete("/v1/tokens/{token_id}", status_code=204)
    async def revoke_token(_: Admin, token_id: str) -> None:
        """Revoke an enrolment or admin token."""
        issued.revoke(token_id)
        await log_writer.wait_until_durable()


def _add_client_routes(app: FastAPI, service: Operations) -> None:
    log_writer = service.engine.log_writer

    @app.delete("/v1/clients/{number}", status_code=204)
    async def revoke(_: Admin, number: Number) -> None:
        """Revoke a client's tokens, and free its slot."""
        await service.revoke(number)

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


def _add_run_routes(app: FastAPI, service: Operations) -> None:
    control = service.control

    @app.post("/v1/admin/pause")
    async def pause(_: Admin) -> server_messages.Paused:
        """Give out no more work; updates of visits under way count."""
        await control.set_paused(is_paused=True)
        return server_messages.Paused(paused=True)

    @app.post("/v1/admin/resume")
    async def resume(_: Admin) -> server_messages.Paused:
        """Give out work again."""
        await control.set_paused(is_paused=False)
        return server_messages.Paused(paused=False)

    @app.post("/v1/admin/extend")
    async def extend(_: Admin, wanted: server_messages.Extension) -> server_messages.Extended:
        """Let the run end at a later version; a finished run goes on."""
        await control.extend(wanted.versions)
        return server_messages.Extended(stop_versions=service.stop_versions, finished=service.engine.run.is_finished)
