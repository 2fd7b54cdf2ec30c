"""The route for updates: plain ASGI, since it is the most frequent one."""

from collections.abc import Callable
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.responses import Response
from offbeat_core import messages
from offbeat_core.serving.connections import Connections
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from offbeat.service.engine.operations import Operations
from offbeat.service.engine.update_receiver import UploadRequest
from offbeat.service.http.request_parts import (
    Length,
    Number,
    Offset,
    Text,
    authenticate_client,
    header,
    lacks,
    malformed,
    required_length,
    supported,
)
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_header import parse_header

_BEFORE_NUMBER = "/v1/uploads/"


class _Parameters(BaseModel):
    number: Number
    content_length: Length = None
    upload_offset: Offset = 0
    checkin: bool = False


class UploadRoute:
    """An ASGI middleware that answers ``PUT /v1/uploads/{number}``.

    To solve the dependencies of this route FastAPI would need as long as the server does for a small update. So FastAPI
    only describes it, see ``describe_upload``. ``answer`` converts refusals.
    """

    path = _BEFORE_NUMBER + "{number}"

    def __init__(
        self, app: ASGIApp, service: Operations, connections: Connections, answer: Callable[[Refusal], Response]
    ) -> None:
        self._app = app
        self._service = service
        self._connections = connections
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        is_upload = scope["type"] == "http" and scope["method"] == "PUT" and scope["path"].startswith(_BEFORE_NUMBER)
        number = scope["path"].removeprefix(_BEFORE_NUMBER) if is_upload else ""
        if not number or "/" in number:
            await self._app(scope, receive, send)
            return
        scope["route"] = self
        try:
            answer = await self._upload(scope, number, receive)
            status = 202 if isinstance(answer, messages.Partly) else 200
            response = Response(answer.model_dump_json(), status, media_type="application/json")
        except Refusal as refusal:
            response = self._answer(refusal)
        except ClientDisconnect:
            response = Response(status_code=499)  # nobody receives it
        await response(scope, receive, send)

    async def _upload(self, scope: Scope, number: str, receive: Receive) -> messages.Received | messages.Partly:
        service, client = self._service, authenticate_client(self._service, self._connections, scope)
        parameters = _parameters(scope, number)
        length = required_length(parameters.content_length)
        update = parse_header(header(scope, b"offbeat-update"))
        supports = header(scope, b"offbeat-supports")
        # A client that lacks what the algorithm needs gets no visit, and the reason when it checks in.
        may_work = lacks(service, header(scope, b"offbeat-protocol"), supports) is None
        service.hear(client, can_evaluate="evaluate" in supported(supports))
        return await service.upload(
            UploadRequest(
                client,
                parameters.number,
                update,
                parameters.upload_offset,
                length,
                Request(scope, receive).stream(),
                check_in=parameters.checkin and may_work,
            )
        )


def _parameters(scope: Scope, number: str) -> _Parameters:
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    given = {
        "number": number,
        "content_length": header(scope, b"content-length"),
        "upload_offset": header(scope, b"upload-offset"),
        "checkin": query.get("checkin"),
    }
    try:
        return _Parameters.model_validate({name: text for name, text in given.items() if text is not None})
    except ValidationError as error:
        raise malformed(error.errors()[0]) from None


def describe_upload(api: FastAPI) -> None:
    """Describe the route in the OpenAPI document."""

    @api.put(UploadRoute.path, response_model=messages.Received, responses={202: {"model": messages.Partly}})
    async def upload(
        number: Number,
        content_length: Length = None,
        upload_offset: Offset = 0,
        offbeat_update: Text = None,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
        checkin: bool = False,
    ) -> None:
        """Send an update, or a part of one."""
        raise NotImplementedError  # UploadRoute has answered
