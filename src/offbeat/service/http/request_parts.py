"""Tokens, headers, numbers and protocol versions of requests."""

from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request
from offbeat_core.messages import Problem
from offbeat_core.serving.connections import Connections, peer_of
from starlette.types import Scope

from offbeat.service.accounts.accounts import hash_of
from offbeat.service.accounts.issued_tokens import token_id
from offbeat.service.audit.audit_log import acting
from offbeat.service.engine.operations import Operations
from offbeat.service.refusal import Refusal

LARGEST_NUMBER = 2**63 - 1

PROBLEMS: dict[int | str, dict[str, Any]] = {"default": {"model": Problem, "description": "Refused"}}


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first of a request's headers of this name in lower case, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


def bearer_token(scope: Scope) -> str | None:
    """Return the token of a request, None if it has none."""
    scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def authenticate(service: Operations, connections: Connections, scope: Scope) -> None:
    """Check a request's token before its body is read; the route checks its kind."""
    token = bearer_token(scope)
    service.accounts.check_any(token, may_have_ended=scope["path"] == "/v1/enrol")
    connections.trust(peer_of(scope), token or "")


def required_length(content_length: int | None) -> int:
    """Return the announced length of a request's body."""
    if content_length is None:
        raise Refusal("length-required", "send Content-Length")
    return content_length


def _client(request: Request) -> int:
    token = bearer_token(request.scope)
    hashed = hash_of(token, "client")
    request.app.state.front.rate.take(hashed)
    client = request.app.state.service.client(hashed)
    request.app.state.connections.trust(peer_of(request.scope), token or "")
    return client


def _admin(request: Request) -> int:
    token = bearer_token(request.scope)
    number = request.app.state.service.accounts.check(token, "admin")
    acting.set(None if token is None else token_id(token))
    return number


Client = Annotated[int, Depends(_client)]
Admin = Annotated[int, Depends(_admin)]

Number = Annotated[int, Path(ge=0, le=LARGEST_NUMBER)]
Offset = Annotated[int, Header(ge=0, le=LARGEST_NUMBER)]
Length = Annotated[int | None, Header(ge=0, le=LARGEST_NUMBER)]
Text = Annotated[str | None, Header()]
