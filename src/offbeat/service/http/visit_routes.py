"""The routes of visits, which every front serves itself.

``docs/protocol.md`` describes them.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from offbeat_core import messages
from offbeat_core.serving.connections import peer_of
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from offbeat.service.accounts.registry import Kind
from offbeat.service.accounts.token_forms import hash_of
from offbeat.service.front.front import Caller, Front, UploadRequest
from offbeat.service.http.model_response import ModelResponse
from offbeat.service.http.request_parts import (
    Length,
    LongText,
    Number,
    Offset,
    Text,
    bearer_token,
    header,
    required_length,
)
from offbeat.service.internal.questions import Download, GiveUp, HandInEvaluation, RenewLease
from offbeat.service.updates.update_header import parse_header

T = TypeVar("T")


def _caller(request: Request, kind: Kind) -> Caller:
    scope = request.scope
    token = bearer_token(scope) or ""
    hashed = hash_of(token, kind)
    trust = partial(request.app.state.connections.trust, peer_of(scope), token)
    return Caller(hashed, trust, header(scope, b"offbeat-protocol"), header(scope, b"offbeat-supports"))


def _client(request: Request) -> Caller:
    caller = _caller(request, "client")
    request.app.state.rate.take(caller.token)
    return caller


def _operator(request: Request) -> Caller:
    return _caller(request, "operator")


Client = Annotated[Caller, Depends(_client)]
Operator = Annotated[Caller, Depends(_operator)]


def add_visit_routes(app: FastAPI, front: Front) -> None:
    """Add the routes of visits to an application."""
    _add_work_routes(app, front)
    _add_upload_routes(app, front)
    _add_download_routes(app, front)


def _add_work_routes(app: FastAPI, front: Front) -> None:
    @app.post("/v1/checkin", response_model=messages.CheckedIn)
    def check_in(
        request: Request,
        client: Client,
        checkin: messages.CheckInRequest,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
    ) -> Awaitable[messages.CheckedIn]:
        """Ask for work."""
        work = front.check_in(client, checkin.wait_seconds)
        if not checkin.wait_seconds:
            return work
        request.scope["headers"] = ()  # read, and a kilobyte of each of thousands that wait
        return while_connected(request.receive, work)

    @app.post("/v1/visits/{number}/heartbeat")
    async def heartbeat(client: Client, number: Number) -> messages.Beat:
        """Renew a visit's lease."""
        return await front.ask(client, RenewLease(token=client.token, visit=number))

    @app.post("/v1/visits/{number}/give-up", status_code=204)
    async def give_up(client: Client, number: Number) -> None:
        """Free a visit's slot."""
        await front.ask(client, GiveUp(token=client.token, visit=number))

    @app.post("/v1/evaluations/{version}")
    async def evaluation(
        client: Client, version: Number, result: messages.EvaluationResult
    ) -> messages.EvaluationReceipt:
        """Send an evaluation of a version."""
        return await front.ask(client, HandInEvaluation(token=client.token, version=version, result=result))


def _add_upload_routes(app: FastAPI, front: Front) -> None:
    @app.get("/v1/uploads/{number}")
    async def upload_state(client: Client, number: Number) -> messages.UploadState:
        """Ask whether an update would count, and how many bytes of it have arrived."""
        return await front.upload_state(client, number)

    @app.put("/v1/uploads/{number}", response_model=messages.Received, responses={202: {"model": messages.Partly}})
    async def upload(
        request: Request,
        client: Client,
        number: Number,
        content_length: Length = None,
        upload_offset: Offset = 0,
        offbeat_update: LongText = None,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
        checkin: bool = False,
    ) -> messages.Received | Response:
        """Send an update, or a part of one."""
        length = required_length(content_length)
        answer = await front.upload(
            UploadRequest(
                client, number, parse_header(offbeat_update), upload_offset, length, request.stream(), check_in=checkin
            )
        )
        if isinstance(answer, messages.Partly):
            return Response(answer.model_dump_json(), 202, media_type="application/json")
        return answer


def _add_download_routes(app: FastAPI, front: Front) -> None:
    @app.get("/v1/models/latest", status_code=307, response_class=RedirectResponse)
    async def latest(client: Client) -> RedirectResponse:
        """Find the newest version of the model."""
        found = await front.ask(client, Download(token=client.token))
        return RedirectResponse(str(found.version))  # relative, since a run may be below a prefix

    @app.get("/v1/models/{version}", response_class=FileResponse, response_model=None)
    async def model(
        client: Client, version: Number, if_none_match: Text = None, offbeat_supports: Text = None
    ) -> Response:
        """Download a version of the model."""
        found, url = await front.permit_download(client, version, if_none_match)
        if if_none_match == (etag := f'"{found.sha256}"'):
            return Response(status_code=304, headers={"ETag": etag})
        if url is not None:
            return RedirectResponse(url, headers={"ETag": etag, "Cache-Control": "no-store"})
        return ModelResponse(await front.model(found), found.sha256, {"Cache-Control": "private, no-cache"})

    @app.get("/v1/admin/model", response_class=FileResponse)
    async def newest(operator: Operator) -> FileResponse:
        """Download the newest version of the model."""
        found = await front.ask(
            operator, Download(token=operator.token, by_operator=True, is_elsewhere=front.is_elsewhere)
        )
        headers = {"Content-Disposition": f'attachment; filename="{found.name}"', "Cache-Control": "no-store"}
        return ModelResponse(await front.model(found), found.sha256, headers)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; cancel it when the connection closes."""
    task = asyncio.current_task()
    assert task is not None
    disconnect = _Disconnect(receive, task)
    try:
        return await work
    except asyncio.CancelledError:
        if disconnect.has_come and not task.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        disconnect.ignore()


class _Disconnect:
    """Cancels a task when its request's connection closes.

    Thousands of clients wait at once, and a task for each would take as much memory again.
    """

    __slots__ = ("_message", "_receive", "_task", "has_come")

    def __init__(self, receive: Receive, task: "asyncio.Task[Any]") -> None:
        self._receive = receive
        self._task: asyncio.Task[Any] | None = task
        self.has_come = False
        self._listen()

    def ignore(self) -> None:
        """Let the task go on whatever comes."""
        self._task = None
        self._message.cancel()

    def _listen(self) -> None:
        self._message = asyncio.ensure_future(self._receive())
        self._message.add_done_callback(self._hear)

    def _hear(self, message: "asyncio.Future[Message]") -> None:
        if self._task is None:
            return
        if message.result()["type"] != "http.disconnect":
            self._listen()
        else:
            self.has_come = True
            self._task.cancel()
