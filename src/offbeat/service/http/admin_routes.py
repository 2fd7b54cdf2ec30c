"""The routes for admins and their programs; ``docs/protocol.md`` describes them."""

from fastapi import FastAPI
from fastapi.responses import Response

from offbeat.service import server_messages
from offbeat.service.accounts.issued_tokens import token_id as id_of
from offbeat.service.engine.service import Service
from offbeat.service.http.request_parts import Admin, Number


def add_admin_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for admins to an application."""
    issued, log_writer = service.accounts.issued, service.engine.log_writer

    @app.get("/v1/status")
    async def status(_: Admin) -> server_messages.Status:
        """Return the progress of the run."""
        status = service.status()
        await log_writer.wait_until_durable()
        return status

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

    @app.delete("/v1/clients/{number}", status_code=204)
    async def revoke(_: Admin, number: Number) -> None:
        """Revoke a client's tokens, and free its slot."""
        await service.revoke(number)

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
