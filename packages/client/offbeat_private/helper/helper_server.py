"""The helper's process: start, listen, answer its server, stop."""

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from offbeat_core.serving.certificates import make_certificates
from offbeat_core.serving.connections import Connections, peer_of
from offbeat_core.serving.console_log import event
from offbeat_core.serving.http_server import HttpServer, listen, max_connections, raise_file_limit
from offbeat_core.tokens import looks_like, token_hash
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_folder import HelperFolder
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.helper.roster import TOKEN_PREFIX
from offbeat_private.masks.envelope import RECORD_BYTES
from offbeat_private.masks.helper_facts import HEAD_HEADER, SIGNATURE_HEADER
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

_GRACE_SECONDS = 10.0  # for a batch that is being opened when the helper stops


def run_helper(folder: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Run the helper of a folder until SIGTERM or Ctrl-C.

    ``ready`` gets its URL once it listens.
    """

    async def until_a_signal() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(folder, host, port, ready=ready, stop=stop)

    asyncio.run(until_a_signal())


async def serve(folder: Path, host: str, port: int, *, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Run the helper of a folder until ``stop`` is set.

    It finishes the batch that it is opening.
    """
    with closing(Helper(folder)) as helper, listen(host, port, "choose another --host or --port") as listener:
        certificates = make_certificates(HelperFolder(folder).tls, helper.run.hosts)
        port, limit = listener.getsockname()[1], max_connections(raise_file_limit())
        url = f"https://{host}:{port}"
        connections = Connections(port, limit // 4)
        server = HttpServer(make_app(helper, connections), connections, listener, certificates, limit)
        serving, stopping = asyncio.create_task(server.serve()), asyncio.create_task(stop.wait())
        watching = asyncio.create_task(connections.keep_watch())
        try:
            ready(url)
            event("ready", url=url)
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await server.close(serving, _GRACE_SECONDS)
            stopping.cancel()
            watching.cancel()
        if serving.done():
            serving.result()
    event("stopped")


_Number = Annotated[int, InPath(ge=0, lt=2**63)]
_MAX_BODY_SECONDS = 60.0
_KINDS = {404: "not-found", 405: "method-not-allowed"}


def make_app(helper: Helper, connections: Connections) -> FastAPI:
    """Return the application of a helper over these connections."""
    app = FastAPI(title="Offbeat helper", openapi_url=None, redirect_slashes=False)
    _add_error_answers(app)
    largest = helper.terms.buffer * RECORD_BYTES

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/v1/helper")
    async def facts(request: Request) -> dict[str, str | int]:
        _authenticate(request, helper, connections)
        facts = helper.facts()
        return {
            "run": helper.terms.run.hex(),
            "terms": helper.terms.digest.hex(),
            "epoch": facts.epoch,
            "epoch_key": facts.epoch_key.hex(),
            "counter": facts.head.number,
            "head": facts.head.digest.hex(),
            "head_signature": facts.signature.hex(),
        }

    @app.post("/v1/batches/{number}")
    async def open_batch(number: _Number, request: Request) -> Response:
        _authenticate(request, helper, connections)
        records = _records(await _body(request, largest))
        answer = await asyncio.to_thread(helper.open, number, records)
        event("answered", logging.DEBUG, batch=number, records=len(records))
        headers = {
            HEAD_HEADER: f"{answer.head.number}:{answer.head.digest.hex()}",
            SIGNATURE_HEADER: answer.signature.hex(),
        }
        return FileResponse(answer.path, headers=headers, media_type="application/octet-stream")

    return app


def _authenticate(request: Request, helper: Helper, connections: Connections) -> None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise HelperRefusal("no-token", "send Authorization: Bearer with the token that enrolling printed")
    if not looks_like(token, TOKEN_PREFIX) or not secrets.compare_digest(token_hash(token), helper.run.token_hash):
        raise HelperRefusal(
            "unknown-token",
            "this is not the token that the last enrolment printed: write that one into the server's "
            "service.helper_token_file and restart the server",
        )
    connections.trust(peer_of(request.scope), token)


async def _body(request: Request, largest: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_MAX_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > largest:
                    raise HelperRefusal("too-large", f"a batch has at most {largest} bytes")
    except TimeoutError:
        raise HelperRefusal("too-slow", f"the batch did not come within {_MAX_BODY_SECONDS:g} s") from None
    return bytes(body)


def _records(body: bytes) -> list[bytes]:
    if len(body) % RECORD_BYTES:
        raise HelperRefusal("malformed-request", f"a batch is a sequence of records of {RECORD_BYTES} bytes")
    return [body[begin : begin + RECORD_BYTES] for begin in range(0, len(body), RECORD_BYTES)]


def _add_error_answers(app: FastAPI) -> None:
    """Answer errors of the routes with problem documents (RFC 9457)."""

    @app.exception_handler(HelperRefusal)
    async def refused(_: Request, refusal: HelperRefusal) -> Response:
        event("refused", logging.WARNING, kind=refusal.kind, detail=refusal.detail)
        return JSONResponse(refusal.problem(), refusal.status, media_type="application/problem+json")

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return await refused(request, HelperRefusal("malformed-request", str(error.errors()[0]["msg"])))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        kind = _KINDS.get(error.status_code, "malformed-request")
        return await refused(request, HelperRefusal(kind, str(error.detail)))

    @app.exception_handler(ClientDisconnect)
    async def disconnected(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody receives it
