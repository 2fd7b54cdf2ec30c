"""The HTTP routes; ``docs/protocol.md`` describes them."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from offbeat.service import messages
from offbeat.service.body_limit import BodyLimit
from offbeat.service.logs import event
from offbeat.service.metrics import Measured
from offbeat.service.model_response import ModelResponse
from offbeat.service.refusal import Refusal
from offbeat.service.service import Service
from offbeat.service.unread_body import UnreadBody
from offbeat.service.update_head import parse_head

T = TypeVar("T")

_LARGEST_NUMBER = 2**63 - 1

Number = Annotated[int, Path(ge=0, le=_LARGEST_NUMBER)]
_PROBLEMS: dict[int | str, dict[str, Any]] = {"default": {"model": messages.Problem, "description": "Refused"}}


async def _client(request: Request) -> int:
    return request.app.state.service.client(_token(request))


async def _admin(request: Request) -> int:
    return request.app.state.service.accounts.check(_token(request), "admin")


Client = Annotated[int, Depends(_client)]
Admin = Annotated[int, Depends(_admin)]


def make_app(service: Service) -> FastAPI:
    """Return the application that speaks for a service."""
    app = FastAPI(
        title="Offbeat", version="1", docs_url=None, redoc_url=None, redirect_slashes=False, responses=_PROBLEMS
    )
    app.state.service = service

    @app.post("/v1/enrol", status_code=201)
    async def enrol(request: Request, enrolment: messages.Enrolment) -> messages.Enrolled:
        """Take part from now on."""
        number, token, seconds = service.accounts.enrol(_token(request), enrolment.name, enrolment.token)
        await service.engine.journal.durable()
        return messages.Enrolled(client=number, token=token, expires_seconds=seconds)

    @app.post("/v1/token")
    async def rotate(client: Client) -> messages.NewToken:
        """Get another token; the old one ends when the new one is first used."""
        token, seconds = service.accounts.rotate(client)
        await service.engine.journal.durable()
        return messages.NewToken(token=token, expires_seconds=seconds)

    @app.post("/v1/checkin")
    async def check_in(request: Request, client: Client, checkin: messages.CheckIn) -> messages.CheckedIn:
        """Ask for work."""
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
        checkin: bool = False,
    ) -> Response:
        """Send an update, or a part of one."""
        if content_length is None:
            raise Refusal("length-required", "send Content-Length")
        head = parse_head(offbeat_update)
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
    async def make_token(_: Admin, wanted: messages.NewEnrolmentToken) -> messages.EnrolmentToken:
        """Make a token that lets clients enrol."""
        token = service.accounts.make("enrolment", uses=wanted.uses, seconds=wanted.expires_seconds)
        await service.engine.journal.durable()
        return messages.EnrolmentToken(token=token)

    @app.delete("/v1/clients/{number}", status_code=204)
    async def revoke(_: Admin, number: Number) -> None:
        """Let nobody speak for a client any more."""
        service.accounts.revoke(number)
        await service.engine.journal.durable()

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
        """Say whether it serves requests, and can write to its disk."""
        problem = service.engine.problem or (None if service.ready else "stopping")
        return Response(f"{problem or 'ok'}\n", 503 if problem else 200, media_type="text/plain")

    _answer_refusals(app, service)
    app.add_middleware(BodyLimit)
    app.add_middleware(UnreadBody)
    app.add_middleware(Measured, metrics=service.metrics)
    return app


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


def _answer_refusals(app: FastAPI, service: Service) -> None:
    def answer(refusal: Refusal) -> Response:
        service.metrics.refusals.labels(refusal.kind).inc()
        event("refused", logging.WARNING, kind=refusal.kind, detail=refusal.detail)
        return JSONResponse(refusal.problem(), refusal.status, refusal.headers, media_type="application/problem+json")

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
