"""The live page's files, as answers that a browser may not mix with others."""

import hashlib
from importlib import resources
from typing import NamedTuple

from fastapi.responses import Response

import offbeat.web

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""The headers of each file: no script, style or request but the server's own."""


class _File(NamedTuple):
    content: bytes
    media_type: str
    etag: str


class PageFiles:
    """The files of ``offbeat.web`` that make up the live page, in memory."""

    def __init__(self) -> None:
        web = resources.files(offbeat.web)
        found = [*web.joinpath("live").iterdir(), web / "uplot.js", web / "uplot.css"]
        self._files = {path.name: _file(path.name, path.read_bytes()) for path in found if _type(path.name)}

    def answer(self, name: str, known: str | None = None) -> Response | None:
        """Return the answer with a file; None if there is none of that name.

        Args:
            name: The file's name.
            known: The request's header ``If-None-Match``.
        """
        file = self._files.get(name)
        if file is None:
            return None
        headers = {**HEADERS, "ETag": file.etag}
        if known == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=f"{file.media_type}; charset=utf-8", headers=headers)


def _file(name: str, content: bytes) -> _File:
    return _File(content, _type(name), f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _type(name: str) -> str:
    return next((kind for suffix, kind in _TYPES.items() if name.endswith(suffix)), "")
