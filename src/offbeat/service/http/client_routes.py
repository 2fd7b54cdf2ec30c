"""The routes for clients; ``docs/protocol.md`` describes them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from offbeat_core import messages
from starlette.requests import ClientDisconnect

from offbeat.service.engine.operations import Operations
from offbeat.service.engine.update_receiver import UploadRequest
from offbeat.service.http.model_response import ModelResponse
from offbeat.service.http.request_parts import (
    Client,
    Length,
    Number,
    Offset,
    Text,
    bearer_token,
    lacks,
    missing_terms,
    other_protocol,
    required_length,
    supported,
)
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_header import parse_header

T = TypeVar("T")


def add_client_routes(app: FastAPI, service: Operations) -> None:
    """Add the routes for clients to an application."""
    _add_account_routes(app, service)
    _add_probe_routes(app, service)
    _add_visit_routes(app, service)
    _add_evaluation_routes(app, service)
    _add_upload_routes(app, service)


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


def _add_probe_routes(app: FastAPI, service: Operations) -> None:
    @app.get("/v1/probe")
    async def probe(client: Client) -> messages.Probe:
        """Ask for the measurement to make before the first visit."""
        return service.probe(client)

    @app.put("/v1/probe")
    async def upload_probe(request: Request, client: Client, content_length: Length = None) -> messages.ProbeBody:
        """Send bytes to measure how long that takes."""
        return await service.take_probe(client, required_length(content_length), request.stream())

    @app.post("/v1/probe")
    async def speed(client: Client, measured: messages.Speed) -> messages.Speed:
        """Report how fast the client is."""
        await service.engine.note_speed(client, measured.step_seconds, measured.upload_seconds)
        return measured


def _add_visit_routes(app: FastAPI, service: Operations) -> None:
    @app.post("/v1/checkin")
    async def check_in(
        request: Request,
        client: Client,
        checkin: messages.CheckInRequest,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
    ) -> messages.CheckedIn:
        """Ask for work."""
        missing = lacks(service, offbeat_protocol, offbeat_supports)
        if missing is not None:
            raise Refusal("not-supported", missing)
        service.hear(client, can_evaluate="evaluate" in supported(offbeat_supports))
        # First without waiting, since watching the connection costs time.
        answer = await service.check_in(client, 0.0)
        has_work = answer.visit is not None or answer.evaluation is not None
        if has_work or answer.finished or not checkin.wait_seconds:
            return answer
        return await _while_connected(request, service.check_in(client, checkin.wait_seconds))

    @app.get("/v1/models/latest", status_code=307, response_class=RedirectResponse)
    async def latest(client: Client) -> RedirectResponse:
        """Find the newest version of the model."""
        return RedirectResponse(f"/v1/models/{max(service.engine.models.versions())}")

    @app.get("/v1/models/{version}", response_class=FileResponse, response_model=None)
    async def model(client: Client, version: Number, if_none_match: Text = None) -> Response:
        """Download a version of the model."""
        response = ModelResponse(service.engine.models, version, {"Cache-Control": "private, no-cache"})
        if if_none_match == (etag := response.headers["ETag"]):
            return Response(status_code=304, headers={"ETag": etag})
        service.metrics.download_bytes.inc(int(response.headers["Content-Length"]))
        return response

    @app.post("/v1/visits/{number}/heartbeat")
    async def heartbeat(client: Client, number: Number) -> messages.Beat:
        """Renew a visit's lease."""
        return await service.heartbeat(client, number)

    @app.post("/v1/visits/{number}/give-up", status_code=204)
    async def give_up(client: Client, number: Number) -> None:
        """Free a visit's slot."""
        await service.engine.give_up(client, number)


def _add_evaluation_routes(app: FastAPI, service: Operations) -> None:
    @app.post("/v1/evaluations/{version}")
    async def evaluation(
        client: Client, version: Number, result: messages.EvaluationResult
    ) -> messages.EvaluationReceipt:
        """Send an evaluation of a version."""
        return await service.evaluated(client, version, result)

    @app.post("/v1/evaluations/{version}/give-up", status_code=204)
    async def give_up_evaluation(client: Client, version: Number) -> None:
        """Do not evaluate a version."""
        await service.give_up_evaluation(client, version)


def _add_upload_routes(app: FastAPI, service: Operations) -> None:
    @app.get("/v1/uploads/{number}")
    async def upload_state(client: Client, number: Number) -> messages.UploadState:
        """Ask whether an update would count, and how many bytes of it have arrived."""
        return await service.upload_state(client, number)

    @app.put("/v1/uploads/{number}", response_model=messages.Received, responses={202: {"model": messages.Partly}})
    async def upload(
        request: Request,
        client: Client,
        number: Number,
        content_length: Length = None,
        upload_offset: Offset = 0,
        offbeat_update: Text = None,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
        checkin: bool = False,
    ) -> messages.Received | Response:
        """Send an update, or a part of one."""
        length = required_length(content_length)
        header = parse_header(offbeat_update)
        # A client that lacks what the algorithm needs gets no visit, and the reason when it checks in.
        missing = lacks(service, offbeat_protocol, offbeat_supports)
        service.hear(client, can_evaluate="evaluate" in supported(offbeat_supports))
        answer = await service.upload(
            UploadRequest(
                client, number, header, upload_offset, length, request.stream(), check_in=checkin and missing is None
            )
        )
        if isinstance(answer, messages.Partly):
            return Response(answer.model_dump_json(), 202, media_type="application/json")
        return answer


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; cancel it when the connection closes."""

    async def until_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    working, disconnected = asyncio.create_task(work), asyncio.create_task(until_disconnect())
    try:
        await asyncio.wait([working, disconnected], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        disconnected.cancel()
        working.cancel()
        await asyncio.wait([working, disconnected])
