"""The other routes for clients, which the leader serves.

``docs/protocol.md`` describes them.
"""

from fastapi import FastAPI, Request
from offbeat_core import messages

from offbeat.service.engine.client_support import missing_terms, other_protocol
from offbeat.service.engine.operations import Operations
from offbeat.service.http.authentication import Client
from offbeat.service.http.request_parts import Length, Number, Text, bearer_token, required_length
from offbeat.service.refusal import Refusal
from offbeat.service.updates.uploads import Uploads


def add_client_routes(app: FastAPI, service: Operations, uploads: Uploads) -> None:
    """Add the routes for accounts, probes and the like to an application."""
    _add_account_routes(app, service)
    _add_probe_routes(app, service, uploads)

    @app.post("/v1/evaluations/{version}/give-up", status_code=204)
    async def give_up_evaluation(client: Client, version: Number) -> None:
        """Do not evaluate a version."""
        await service.give_up_evaluation(client, version)


def _add_account_routes(app: FastAPI, service: Operations) -> None:
    @app.post("/v1/enrol", status_code=201)
    async def enrol(
        request: Request,
        enrolment: messages.Enrolment,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
    ) -> messages.Enrolled:
        """Enrol a client."""
        # Here already, since a client that is refused later keeps its place.
        missing = None if service.engine.shares is None else missing_terms(offbeat_supports)
        missing = other_protocol(offbeat_protocol) or missing
        if missing is not None:
            raise Refusal("not-supported", missing)
        return await service.enrol(bearer_token(request.scope), enrolment)

    @app.post("/v1/examples")
    async def declare(client: Client, declaration: messages.Declaration) -> messages.Declaration:
        """Declare how many examples the client holds, once."""
        return await service.declare(client, declaration.examples)

    @app.post("/v1/token")
    async def rotate(client: Client) -> messages.NewToken:
        """Get another token; the old one ends when the new one is first used."""
        token, seconds = service.accounts.rotate(client)
        await service.engine.log_writer.wait_until_durable()
        return messages.NewToken(token=token, expires_seconds=seconds)


def _add_probe_routes(app: FastAPI, service: Operations, uploads: Uploads) -> None:
    @app.get("/v1/probe")
    async def probe(client: Client) -> messages.Probe:
        """Ask for the measurement to make before the first visit."""
        return service.visits.probe(client)

    @app.put("/v1/probe")
    async def upload_probe(request: Request, client: Client, content_length: Length = None) -> messages.ProbeBody:
        """Send bytes to measure how long that takes."""
        size = required_length(content_length)
        if size > messages.LARGEST_PROBE:
            raise Refusal("too-large", f"a probe has at most {messages.LARGEST_PROBE} bytes, not {size}")
        return messages.ProbeBody(bytes=len(await uploads.read(str(client), size, request.stream())))

    @app.post("/v1/probe")
    async def speed(client: Client, measured: messages.Speed) -> messages.Speed:
        """Report how fast the client is."""
        await service.engine.note_speed(client, measured.step_seconds, measured.upload_seconds)
        return measured
