"""The routes for the people and programs that look after a server, and for probes."""

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import Response

from offbeat.service import server_messages
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.issued_tokens import token_id as id_of
from offbeat.service.engine.operations import Operations
from offbeat.service.http.authentication import Admin, Operator, Viewer
from offbeat.service.http.request_parts import LARGEST_NUMBER, Number
from offbeat.service.refusal import Refusal

_MOST_CLIENTS = 1000  # in one answer

After = Annotated[int | None, Query(ge=0, le=LARGEST_NUMBER)]
Limit = Annotated[int, Query(ge=1, le=_MOST_CLIENTS)]


def add_admin_routes(app: FastAPI, service: Operations) -> None:
    """Add these routes to an application."""
    add_token_routes(app, service.accounts)
    _add_client_routes(app, service)
    _add_run_routes(app, service)

    @app.post("/v1/tokens", status_code=201)
    async def make_token(_: Admin, wanted: server_messages.NewToken) -> server_messages.MadeToken:
        """Make a token for enrolment, or for a person or a program with a role."""
        return await made_token(service.accounts, wanted)

    @app.get("/v1/status")
    async def status(_: Viewer) -> server_messages.Status:
        """Return the progress of the run."""
        status = service.status()
        await service.engine.log_writer.wait_until_durable()
        return status

    @app.get("/metrics")
    async def metrics(_: Viewer) -> Response:
        """Return the metrics in Prometheus' text format."""
        return metrics_response(service.metrics_text())

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


def metrics_response(text: bytes) -> Response:
    """Return the response with metrics in Prometheus' text format."""
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def made_token(accounts: Accounts, wanted: server_messages.NewToken) -> server_messages.MadeToken:
    """Make a token, and wait until it is on disk."""
    if wanted.uses is not None and wanted.kind != "enrolment":
        raise Refusal("malformed-request", "only enrolment tokens have a number of uses: leave uses out")
    token = accounts.issued.make(wanted.kind, uses=wanted.uses, seconds=wanted.expires_seconds, name=wanted.name)
    await accounts.wait_until_durable()
    return server_messages.MadeToken(token=token, id=id_of(token))


def add_token_routes(
    app: FastAPI, accounts: Accounts, labels_of: Callable[[str], Sequence[str]] = lambda _: ()
) -> None:
    """Add the routes that list and revoke tokens to an application.

    ``labels_of`` returns the labels of a token's sites, by the SHA-256 of the token.
    """

    @app.get("/v1/tokens")
    async def tokens(_: Admin) -> server_messages.Tokens:
        """List all tokens but the clients'."""
        listed = server_messages.Tokens(tokens=accounts.issued.infos(labels_of))
        await accounts.wait_until_durable()
        return listed

    @app.delete("/v1/tokens/{token_id}", status_code=204)
    async def revoke_token(_: Admin, token_id: str) -> None:
        """Revoke a token."""
        accounts.issued.revoke(token_id)
        await accounts.wait_until_durable()


def _add_client_routes(app: FastAPI, service: Operations) -> None:
    log_writer = service.engine.log_writer

    @app.delete("/v1/clients/{number}", status_code=204)
    async def revoke(_: Operator, number: Number) -> None:
        """Revoke a client's tokens, and free its slot."""
        await service.revoke(number)

    @app.delete("/v1/clients/{number}/data")
    async def forget(_: Admin, number: Number) -> server_messages.Forgotten:
        """Delete what the server holds of a client."""
        return await service.forget(number)

    @app.get("/v1/admin/clients")
    async def clients(_: Viewer, after: After = None, limit: Limit = 100) -> server_messages.ClientPage:
        """List clients, by number from the one after ``after``."""
        page = service.clients(-1 if after is None else after, limit)
        await log_writer.wait_until_durable()
        return page

    @app.post("/v1/admin/clients/{number}/rename", status_code=204)
    async def rename(_: Operator, number: Number, wanted: server_messages.NewName) -> None:
        """Give a client another name."""
        service.accounts.rename(number, wanted.name)
        await log_writer.wait_until_durable()


def _add_run_routes(app: FastAPI, service: Operations) -> None:
    control = service.control

    @app.post("/v1/admin/pause")
    async def pause(_: Operator) -> server_messages.Paused:
        """Give out no more work; updates of visits under way count."""
        await control.set_paused(is_paused=True)
        return server_messages.Paused(paused=True)

    @app.post("/v1/admin/resume")
    async def resume(_: Operator) -> server_messages.Paused:
        """Give out work again."""
        await control.set_paused(is_paused=False)
        return server_messages.Paused(paused=False)

    @app.post("/v1/admin/extend")
    async def extend(_: Operator, wanted: server_messages.Extension) -> server_messages.Extended:
        """Let the run end at a later version; a finished run goes on."""
        await control.extend(wanted.versions)
        return server_messages.Extended(stop_versions=service.stop_versions, finished=service.engine.run.is_finished)

    @app.post("/v1/admin/grow")
    async def grow(_: Operator, wanted: server_messages.Growth) -> server_messages.Growth:
        """Let the run have more clients."""
        await service.grow(wanted.clients)
        return server_messages.Growth(clients=service.engine.coordinator.clients)

    @app.post("/v1/admin/end")
    async def end(_: Operator) -> server_messages.Extended:
        """End the run at its newest version; it may be extended later."""
        await control.end()
        return server_messages.Extended(stop_versions=service.stop_versions, finished=service.engine.run.is_finished)
