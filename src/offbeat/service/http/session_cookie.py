"""The cookie of a session, which stands for a token."""

from starlette.types import ASGIApp, Receive, Scope, Send

from offbeat.service.http.request_parts import header

PAGE_HEADER = "Offbeat-Page"
"""The header that makes the cookie count.

The live page sends it. A browser sends it from another site's page only if the server allows that, which it never does.
"""

_PAGE_HEADER = PAGE_HEADER.lower().encode("ascii")


class SessionCookie:
    """An ASGI middleware that takes the live page's cookie for a token.

    A token of the request's own comes first. ``name`` is the cookie's.
    """

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and header(scope, _PAGE_HEADER) == "1" and header(scope, b"authorization") is None:
            token = cookie(scope, self._name)
            if token is not None:
                scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {token}".encode("latin-1"))]
        await self._app(scope, receive, send)


def cookie(scope: Scope, name: str) -> str | None:
    """Return the value of a request's cookie, None if it has none."""
    for key, value in scope["headers"]:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                found, is_pair, text = pair.strip().partition("=")
                if is_pair and found == name:
                    return text
    return None


def set_cookie(name: str, value: str, seconds: int) -> str:
    """Return the header ``Set-Cookie`` for a cookie that scripts cannot read.

    0 seconds delete it.
    """
    secure = "; Secure" if name.startswith("__Host-") else ""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
