"""The check of tokens at the leader."""

from typing import Annotated

from fastapi import Depends, Request
from offbeat_core.serving.connections import Connections, peer_of
from starlette.types import Scope

from offbeat.service.accounts.issued_tokens import token_id
from offbeat.service.accounts.token_forms import hash_of
from offbeat.service.audit.audit_log import acting
from offbeat.service.engine.operations import Operations
from offbeat.service.http.request_parts import bearer_token


def authenticate(service: Operations, connections: Connections, scope: Scope) -> None:
    """Check a request's token before its body is read; the route checks its kind."""
    token = bearer_token(scope)
    service.accounts.check_any(token, may_have_ended=scope["path"] == "/v1/enrol")
    connections.trust(peer_of(scope), token or "")


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
