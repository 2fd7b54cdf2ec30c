"""Tokens, headers and numbers of requests."""

from typing import Annotated, Any

from fastapi import Header, Path
from offbeat_core.messages import Problem
from starlette.types import Scope

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


def required_length(content_length: int | None) -> int:
    """Return the announced length of a request's body."""
    if content_length is None:
        raise Refusal("length-required", "send Content-Length")
    return content_length


Number = Annotated[int, Path(ge=0, le=LARGEST_NUMBER)]
Offset = Annotated[int, Header(ge=0, le=LARGEST_NUMBER)]
Length = Annotated[int | None, Header(ge=0, le=LARGEST_NUMBER)]
Text = Annotated[str | None, Header(max_length=1024)]
LongText = Annotated[str | None, Header()]
