"""The HTTP routes; ``docs/protocol.md`` describes them."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from offbeat.service import messages
from offbeat.service.engine.facade import Service
from offbeat.service.engine.metrics import Measured
from offbeat.service.http.body_limit import BodyLimit
from offbeat.service.http.client_support import missing_support
from offbeat.service.http.connections import Connections, CountedRequests, peer_of
from offbeat.service.http.model_response import ModelResponse
from offbeat.service.http.unread_body import UnreadBody
from offbeat.service.logs import event
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_header import parse_head

T = TypeVar("T")

PROTOCOL = "1.2"
"""The protocol's version, as in ``docs/protocol.md``; 1.1 has declared examples, 1.2 corrected gradients and probes."""

_LARGEST_NUMBER = 2**63 - 1

Supports = Annotated[str | None, Header()]
Number = Annotated[int, Path(ge=0, le=_LARGEST_NUMBER)]
_PROBLEMS: dict[int | str, dict[str, Any]] = {"default": {"model": messages.Problem, "description": "Refused"}}


async def _client(request: Request) -> int:
    client = request.app.state.service.client(_token(request))
    request.app.state.connections.trust(peer_of(request.scope))
    return client


async def _admin(request: Request) -> int:
    return request.app.state.service.accounts.check(_token(request), "admin")


Client = Annotated[int, Depends(_client)]
Admin = Annotated[int, Depends(_admin)]


def make_app(service: Service, connections: Connections) -> FastAPI:
    """Return the application that speaks for a service, over these connections."""
    app = FastAPI(
        title="Offbeat", version=PROTOCOL, docs_url=None, redoc_url=None, redirect_slashes=False, responses=_PROBLEMS
    )
    app.state.service = service
    app.state.connections = connections

    @app.post("/v1/enrol", status_code=201)
    async def enrol(request: Request, enrolment: messages.Enrolment) -> messages.Enrolled:
        """Take part from now on."""
        return await service.enrol(_token(request), enrolment)

    @app.post("/v1/examples")
    async def declare(client: Client, declaration: messages.Declaration) -> messages.Declaration:
        """Declare how many examples the client holds, once."""
        return await service.declare(client, declaration.examples)

    @app.get("/v1/probe")
    async def probe(client: Client) -> messages.Probe:
        """Ask what to measure before the first visit."""
        return service.probe(client)

    @app.put("/v1/probe")
    async def upload_probe(
        request: Request,
        client: Client,
        content_length: Annotated[int | None, Header(ge=0, le=_LARGEST_NUMBER)] = None,
    ) -> messages.ProbeBody:
        """Send bytes to measure how long that takes."""
        if content_length is None:
            raise Refusal("length-required", "send Content-Length")
        return await service.take_probe(client, content_length, request.stream())

    @app.post("/v1/probe")
    async def speed(client: Client, measured: messages.Speed) -> messages.Speed:
        """Report how fast the client is."""
        await service.engine.note_speed(client, measured.step_seconds, measured.upload_seconds)
        return measured

    @app.post("/v1/token")
    async def rotate(client: Client) -> messages.NewToken:
        """Get another token; the old one ends when the new one is first used."""
        token, seconds = service.accounts.rotate(client)
        await service.engine.journal.durable()
        return messages.NewToken(token=token, expires_seconds=seconds)

    @app.post("/v1/checkin")
    async def check_in(
        request: Request, client: Client, checkin: messages.CheckInRequest, offbeat_supports: Supports = None
    ) -> messages.CheckedIn:
        """Ask for work."""
        missing = missing_support(service.engine.coordinator.algorithm, offbeat_supports)
        if missing is not None:
            raise Refusal("not-supported", missing)
        # Who need not wait need not be watched.
        answer = await service.check_in(client, 0.0)
        if answer.visit is not None or answer.finished or not checkin.wait_seconds:
            return answer
        return await _while_it_is_there(request, service.check_in(client, checkin.wait_seconds))

    @app.get("/v1/models/latest", status_code=307, response_class=RedirectResponse)
    async def latest(client: Client) -> str:
        """Find the newest version of the model."""
        return f"/v1/models/{max(service.engine.models.versions())}"

    @app.get("/v1/models/{version}", response_class=FileResponse)
    async def model(client: Client, version: Number) -> FileResponse:
        """Download a version of the model."""
        headers = {"ETag": f'"{service.run_id}-{version}"', "Cache-Control": "private, immutable, max-age=31536000"}
        response = ModelResponse(service.engine.models.path(version), headers)
        service.metrics.download_bytes.inc(int(response.headers["Content-Length"]))
        return response

    @app.get("/v1/uploads/{number}")
    async def upload_state(client: Client, number: Number) -> messages.UploadState:
        """Ask whether an update would count, and how much of it is there."""
        return await service.upload_state(client, number)

    @app.put("/v1/uploads/{number}", response_model=messages.Received, responses={202: {"model": messages.Partly}})
    async def upload(
        request: Request,
        client: Client,
        number: Number,
        content_length: Annotated[int | None, Header(ge=0, le=_LARGEST_NUMBER)] = None,
        upload_offset: Annotated[int, Header(ge=0, le=_LARGEST_NUMBER)] = 0,
        offbeat_update: Annotated[str | None, Header()] = None,
        offbeat_supports: Supports = None,
        checkin: bool = False,
    ) -> Response:
        """Send an update, or a part of one."""
        if content_length is None:
            raise Refusal("length-required", "send Content-Length")
        head = parse_head(offbeat_update)
        # A client that cannot do its next visit is not given one, and hears why when it checks in.
        checkin = checkin and missing_support(service.engine.coordinator.algorithm, offbeat_supports) is None
        answer = await service.upload(
            client, number, head, upload_offset, content_length, request.stream(), check_in=checkin
        )
        # Most requests end here, and FastAPI would check again what is a message already.
        status = 202 if isinstance(answer, messages.Partly) else 200
        return Response(answer.model_dump_json(), status, media_type="application/json")

    @app.post("/v1/visits/{number}/heartbeat")
    async def heartbeat(client: Client, number: Number) -> messages.Beat:
        """Renew a visit's lease."""
        return await service.heartbeat(client, number)

    @app.post("/v1/visits/{number}/give-up", status_code=204)
    async def give_up(client: Client, number: Number) -> None:
        """Free a visit's slot."""
        await service.engine.give_up(client, number)

    @app.get("/v1/status")
    async def status(_: Admin) -> messages.Status:
        """Return how far the run is."""
        now = service.status()
        await service.engine.journal.durable()
        return now

    @app.post("/v1/enrolment-tokens", status_code=201)
    async def make_token(_: Admin, wanted: messages.NewEnrolmentToken) -> messages.MadeToken:
        """Make a token that lets clients enrol."""
        token = service.accounts.make("enrolment", uses=wanted.uses, seconds=wanted.expires_seconds, name=wanted.name)
        await service.engine.journal.durable()
        return messages.MadeToken(token=token)

    @app.post("/v1/admin-tokens", status_code=201)
    async def make_admin_token(_: Admin, wanted: messages.NewAdminToken) -> messages.MadeToken:
        """Make a token for an admin."""
        token = service.accounts.make("admin", seconds=wanted.expires_seconds, name=wanted.name)
        await service.engine.journal.durable()
        return messages.MadeToken(token=token)

    @app.get("/v1/tokens")
    async def tokens(_: Admin) -> messages.Tokens:
        """List all enrolment and admin tokens."""
        listed = [messages.ListedToken(**asdict(token)) for token in service.accounts.tokens()]
        await service.engine.journal.durable()
        return messages.Tokens(tokens=listed)

    @app.delete("/v1/tokens/{token_id}", status_code=204)
    async def revoke_token(_: Admin, token_id: str) -> None:
        """Revoke an enrolment or admin token."""
        service.accounts.revoke_token(token_id)
        await service.engine.journal.durable()

    @app.delete("/v1/clients/{number}", status_code=204)
    async def revoke(_: Admin, number: Number) -> None:
        """Let nobody speak for a client any more."""
        await service.revoke(number)

    @app.get("/metrics")
    async def metrics(_: Admin) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(service.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/healthz")
    async def healthz() -> Response:
        """Say that the server lives."""
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Return whether it serves requests and can write to its disk, and what a run that has not begun waits for."""
        problem = service.engine.problem or (None if service.ready else "stopping")
        waits_for = service.waits_for()
        state = f"waits for {waits_for}" if waits_for else "ok"
        return Response(f"{problem or state}\n", 503 if problem else 200, media_type="text/plain")

    _answer_refusals(app, service)
    answer = partial(_answer, service)
    app.add_middleware(BodyLimit, authenticate=partial(_authenticate, service, connections), answer=answer)
    app.add_middleware(UnreadBody)
    app.add_middleware(Measured, metrics=service.metrics)
    app.add_middleware(CountedRequests, connections=connections)
    return app


def _authenticate(service: Service, connections: Connections, scope: Scope) -> None:
    """Check the token of a request before its body is read; the route checks whether it may do this.

    Raises:
        Refusal: There is no token, or it is not valid.
    """
    service.accounts.check_any(_token(Request(scope)), may_have_ended=scope["path"] == "/v1/enrol")
    connections.trust(peer_of(scope))


async def _while_it_is_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Give a work up when the client hangs up, so that it is not taken for one that waits."""

    async def until_it_is_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    working, gone = asyncio.create_task(work), asyncio.create_task(until_it_is_gone())
    try:
        await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.wait([working, gone])


def _token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _answer(service: Service, refusal: Refusal) -> Response:
    service.metrics.refusals.labels(refusal.kind).inc()
    event("refused", logging.WARNING, kind=refusal.kind, detail=refusal.detail)
    return JSONResponse(refusal.problem(), refusal.status, refusal.headers, media_type="application/problem+json")


def _answer_refusals(app: FastAPI, service: Service) -> None:
    answer = partial(_answer, service)

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> Response:
        return answer(refusal)

    @app.exception_handler(OSError)
    async def unreadable(request: Request, error: OSError) -> Response:
        version = request.path_params.get("version")
        if isinstance(error, FileNotFoundError) and version is not None:
            return answer(Refusal("no-such-version", f"version {version} is not kept: check in for new work"))
        if error.filename is None:  # it is not the disk's
            raise error
        return answer(service.engine.disk.refusal(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:5])[:200]
        detail = f"{where}: {first['msg'][:200]}".encode("unicode_escape").decode("ascii")
        return answer(Refusal("malformed-request", detail))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        kinds = {404: "not-found", 405: "method-not-allowed"}
        kind = kinds.get(error.status_code, "malformed-request")
        return answer(Refusal(kind, str(error.detail), error.headers))

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody hears it
