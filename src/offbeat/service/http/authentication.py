"""The check of tokens at the leader."""

from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from offbeat_core.serving.connections import Connections, peer_of
from starlette.types import Scope

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.registry import Role
from offbeat.service.accounts.token_forms import hash_of
from offbeat.service.audit.audit_log import acting
from offbeat.service.http.request_parts import bearer_token


def authenticate(accounts: Accounts, connections: Connections, scope: Scope) -> None:
    """Check a request's token before its body is read; the route checks its kind."""
    token = bearer_token(scope)
    accounts.check_any(token, may_have_ended=scope["path"] == "/v1/enrol")
    connections.trust(peer_of(scope), token or "")


def _client(request: Request) -> int:
    token = bearer_token(request.scope)
    hashed = hash_of(token, "client")
    request.app.state.rate.take(hashed)
    client = request.app.state.service.client(hashed)
    request.app.state.connections.trust(peer_of(request.scope), token or "")
    return client


def _check(role: Role, request: Request) -> str:
    token = bearer_token(request.scope)
    accounts = request.app.state.service.accounts
    accounts.check(token, role)
    assert token is not None
    acting.set(accounts.actor_of(token))
    return accounts.role_of(token)


Client = Annotated[int, Depends(_client)]
# The role of the token, which is at least this one.
Viewer = Annotated[str, Depends(partial(_check, "viewer"))]
Operator = Annotated[str, Depends(partial(_check, "operator"))]
Admin = Annotated[str, Depends(partial(_check, "admin"))]
