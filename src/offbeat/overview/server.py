"""Server of a folder's overview and reports, for browsers on this machine."""

import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

from offbeat_core.errors import OffbeatError

from offbeat.overview.entries import Entry, entries
from offbeat.overview.page import overview_page

_HOST = "127.0.0.1"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".png": "image/png",
    ".csv": "text/csv; charset=utf-8",
    ".toml": "text/plain; charset=utf-8",
}


class OverviewServer(ThreadingHTTPServer):
    """Server on a port of 127.0.0.1; 0 for any that is free.

    Pages of other sites cannot read it: it answers only requests that name it by its own address.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0, known: Sequence[Entry] = ()) -> None:
        self.folder = folder.resolve()
        self._known = list(known)
        self._lock = Lock()
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise OffbeatError(f"--port {port}: {error.strerror or error}: choose another port") from None
        self.url = f"http://{_HOST}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that went away; raise any other error."""
        if not isinstance(sys.exception(), ConnectionError):
            raise

    def entries(self) -> list[Entry]:
        """Return the folder's entries; those that did not change are not read again."""
        with self._lock:
            self._known = entries(self.folder, self._known)
            return self._known


class _Handler(BaseHTTPRequestHandler):
    server: OverviewServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        own = {f"{name}:{self.server.server_port}" for name in (_HOST, "localhost")}
        if self.headers.get("Host") not in own:
            self._answer(HTTPStatus.FORBIDDEN, b"this is not the address of this server\n", "text/plain")
            return
        path = unquote(urlsplit(self.path).path)
        try:
            if path == "/entries.json":
                content = json.dumps(self.server.entries()).encode()
                self._answer(HTTPStatus.OK, content, "application/json")
            elif path in ("/", "/index.html"):
                page = overview_page(self.server.folder, self.server.entries(), connects=True)
                self._answer(HTTPStatus.OK, page.encode(errors="backslashreplace"), _TYPES[".html"])
            else:
                self._file(path)
        except OffbeatError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n".encode(), "text/plain; charset=utf-8")

    def _file(self, path: str) -> None:
        try:
            file = (self.server.folder / path.lstrip("/")).resolve()
            kind = _TYPES[file.suffix] if file.is_relative_to(self.server.folder) else None
            content = file.read_bytes() if kind else b""
        except (OSError, ValueError, LookupError):
            kind, content = None, b""
        if kind is None:
            self._answer(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
        else:
            self._answer(HTTPStatus.OK, content, kind)

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: it is the user's own browser."""
