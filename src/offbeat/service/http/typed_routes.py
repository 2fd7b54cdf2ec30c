"""Routes that FastAPI describes, and that are called without it.

To make a function's arguments FastAPI takes longer than the server for most answers. The functions' signatures are as
FastAPI reads them, so its OpenAPI document is true for what is called here.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, get_args
from urllib.parse import parse_qsl

from fastapi import FastAPI, params
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from offbeat.service.http.request_parts import header
from offbeat.service.refusal import Refusal

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class TypedRoutes:
    """An ASGI application of all routes of ``api``, which itself serves nothing.

    ``answer`` converts the errors of routes; it has the request's path parameters, too. ``otherwise`` serves what no
    route of ``api`` does; None to refuse it.
    """

    def __init__(
        self,
        api: FastAPI,
        answer: Callable[[Exception, dict[str, str]], Response],
        otherwise: ASGIApp | None = None,
    ) -> None:
        self._api = api
        self._answer = answer
        self._otherwise = otherwise
        self._routes = [_TypedRoute(route) for route in api.routes if isinstance(route, APIRoute)]
        without = [route for route in self._routes if not route.pattern.groups]  # parameters in the path
        self._fixed = {(route.path, method): route for route in without for method in route.methods}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        scope["app"] = self._api
        given: dict[str, str] = {}
        try:
            route, given = self._route(scope)
            if route is None:
                assert self._otherwise is not None
                await self._otherwise(scope, receive, send)
                return
            scope["route"] = route
            answer = await route.endpoint(**await route.arguments(Request(scope, receive), given))
            await route.response(answer)(scope, receive, send)
        except Exception as error:
            await self._answer(error, given)(scope, receive, send)

    def _route(self, scope: Scope) -> "tuple[_TypedRoute | None, dict[str, str]]":
        """Return a request's route, and its path's parameters.

        The route is None if ``api`` has none for it.
        """
        path, method = scope["path"], scope["method"]
        if (fixed := self._fixed.get((path, method))) is not None:
            return fixed, {}
        allowed: set[str] = set()
        for route in self._routes:
            if (match := route.pattern.fullmatch(path)) is not None:
                if method in route.methods:
                    return route, match.groupdict()
                allowed |= route.methods
        if self._otherwise is not None:
            return None, {}
        if allowed:
            raise Refusal("method-not-allowed", "Method Not Allowed", {"Allow": ", ".join(sorted(allowed))})
        raise Refusal("not-found", "Not Found")


class _TypedRoute:
    """A route's function, and what its parameters are made of."""

    def __init__(self, route: APIRoute) -> None:
        self.path = route.path
        self.methods = route.methods or set()
        self.pattern = re.compile(_PLACEHOLDER.sub(r"(?P<\1>[^/]+)", route.path))
        self.endpoint: Callable[..., Awaitable[Any]] = route.endpoint
        self._status = route.status_code or 200
        self._request: str | None = None  # the names of parameters
        self._dependencies: dict[str, Callable[[Request], object]] = {}
        self._body: tuple[str, type[BaseModel]] | None = None
        self._headers: dict[str, bytes] = {}
        self._queries: list[str] = []
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(route.endpoint).parameters.items():
            kind = parameter.annotation
            depends = next((part for part in get_args(kind) if isinstance(part, params.Depends)), None)
            if kind is Request:
                self._request = name
            elif depends is not None and depends.dependency is not None:
                self._dependencies[name] = depends.dependency
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                self._body = name, kind
            else:
                fields[name] = kind, ... if parameter.default is parameter.empty else parameter.default
                if any(isinstance(part, params.Header) for part in get_args(kind)):
                    self._headers[name] = name.replace("_", "-").encode()
                elif name not in self.pattern.groupindex:
                    self._queries.append(name)
        self._fields = create_model(self.path, **fields)

    async def arguments(self, request: Request, given: dict[str, str]) -> dict[str, Any]:
        """Return the arguments for a request; ``given`` are its path's parameters."""
        arguments = {name: dependency(request) for name, dependency in self._dependencies.items()}
        arguments |= self._parameters(request.scope, given)
        if self._request is not None:
            arguments[self._request] = request
        if self._body is not None:
            name, kind = self._body
            try:
                arguments[name] = kind.model_validate_json(await request.body())
            except ValidationError as error:
                raise _malformed("body", error) from None
        return arguments

    def response(self, answer: Response | BaseModel | None) -> Response:
        """Return the response with what the function has returned."""
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=self._status)
        return Response(answer.model_dump_json(), self._status, media_type="application/json")

    def _parameters(self, scope: Scope, given: dict[str, str]) -> dict[str, Any]:
        texts = dict(given)
        for name, key in self._headers.items():
            if (text := header(scope, key)) is not None:
                texts[name] = text
        if self._queries:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            texts |= {name: query[name] for name in self._queries if name in query}
        try:
            return vars(self._fields.model_validate(texts))
        except ValidationError as error:
            raise _malformed("parameter", error) from None


def _malformed(place: str, error: ValidationError) -> Refusal:
    """Return the refusal for the first error, in a short line of ASCII."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in (place, *first["loc"][:4]))[:200]
    detail = f"{where}: {first['msg'][:200]}".encode("unicode_escape").decode("ascii")
    return Refusal("malformed-request", detail)
