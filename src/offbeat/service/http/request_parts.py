"""Tokens, headers, numbers and protocol versions of requests."""

from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request
from offbeat_core.messages import PROTOCOL, Problem
from offbeat_core.serving.connections import Connections, peer_of
from starlette.types import Scope

from offbeat.algorithms.components import Algorithm, LocalPlan
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
    client = request.app.state.service.client(token)
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


_REMEDIES = {
    "corrects_gradients": (
        "corrects local gradients: let the client add visit.offset to each of them, and say so by its attribute "
        "corrects_gradients = True"
    ),
    "keeps_regulariser": "lets clients keep a regulariser: let the client do so, and send keeps_regulariser, too",
    "needs_loss": "needs each visit's mean training loss: let the client send it",
}


def supported(supports: str | None) -> set[str]:
    """Return the names in a client's header ``Offbeat-Supports``; None: no header."""
    return {name.strip() for name in (supports or "").split(",")}


def other_protocol(protocol: str | None) -> str | None:
    """Return a message for a client of another protocol, or without one; or None."""
    if protocol == PROTOCOL:
        return None
    theirs = "none" if protocol is None else ascii(protocol[:20])
    return f"this server speaks protocol {PROTOCOL}, the client {theirs}: use the same version of Offbeat for both"


def lacks(service: Operations, protocol: str | None, supports: str | None) -> str | None:
    """Return a message about what a client lacks to get a visit, or None.

    ``protocol`` and ``supports`` are its headers ``Offbeat-Protocol`` and ``Offbeat-Supports``.
    """
    coordinator, is_masked = service.engine.coordinator, service.engine.shares is not None
    return other_protocol(protocol) or missing_support(
        coordinator.algorithm, coordinator.local, supports, is_masked=is_masked
    )


def missing_support(
    algorithm: Algorithm, local: LocalPlan, supports: str | None, *, is_masked: bool = False
) -> str | None:
    """Return a message about what the client lacks for this run, or None.

    ``supports`` is its header ``Offbeat-Supports``, names separated by commas; None without the header.
    """
    available = supported(supports)
    # With mu in its plan a client's memory is a regulariser, not a control variate.
    needs = {
        "corrects_gradients": algorithm.corrects_gradients,
        "keeps_regulariser": algorithm.corrects_gradients and algorithm.plan(0, local).mu > 0,
        "needs_loss": algorithm.needs_loss,
    }
    for need, remedy in _REMEDIES.items():
        if needs[need] and need not in available:
            return f"{algorithm.name} {remedy}"
    return missing_terms(supports) if is_masked else None


def missing_terms(supports: str | None) -> str | None:
    """Return a message for a client without the helper's terms, or None."""
    if "privacy" in supported(supports):
        return None
    return "updates of this run are masked: give the client the helper's terms.json (offbeat join --terms)"
