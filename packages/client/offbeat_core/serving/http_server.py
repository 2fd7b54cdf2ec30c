"""The HTTP server, Granian in this process, and its limit of connections."""

import asyncio
import errno
import logging
import math
import socket
import sys
from collections.abc import Awaitable
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.net import SocketHolder  # pyright: ignore[reportPrivateImportUsage]
from granian.server.embed import Server as EmbeddedServer
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.certificates import Certificates
from offbeat_core.serving.connections import Connections, peer_of
from offbeat_core.serving.console_log import event
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BACKLOG = 1024
_IDLE_MILLISECONDS = 75_000  # after which an idle connection is closed
_MAX_CONNECTIONS = 4000
_LARGEST_LIMIT = 2**16  # of open files; a larger one slows down the start of other programs
_RESERVE = 96  # descriptors for the database, segments, checkpoints and the threads that write to the disk
_MIN_CONNECTIONS = 16
_FILES_PER_CONNECTION = 2  # the connection itself, and the update or the model that it transfers
# Granian's messages go the way of all others.
_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {},
    "handlers": {},
    "loggers": {"_granian": {"handlers": [], "propagate": True}},
}


class HttpServer(EmbeddedServer):
    """Granian's server on a socket that listens already.

    Without such a socket Granian would share the port with other processes. Without certificates it is plain HTTP.
    ``connections`` hears where requests are under way.
    """

    def __init__(
        self,
        app: ASGIApp,
        connections: Connections,
        listener: socket.socket,
        certificates: Certificates | None,
        max_connections: int,
    ) -> None:
        super().__init__(
            self._answer,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,  # uploads over HTTP/2 take five times as long
            websockets=False,
            backlog=_BACKLOG,
            backpressure=max_connections,
            http1_settings=HTTP1Settings(header_read_timeout=_IDLE_MILLISECONDS),
            log_level=LogLevels.error,
            log_dictconfig=_LOGGING,
            ssl_cert=certificates.certificate if certificates else None,
            ssl_key=certificates.key if certificates else None,
        )
        self._listener = listener
        self._app = UnreadBody(app)
        self._connections = connections
        self._under_way: set[asyncio.Task[Any]] = set()

    async def close(self, serving: asyncio.Task[None], seconds: float) -> None:
        """Let requests under way end within some seconds, and cut off the others.

        ``serving`` is the task that serves.
        """
        self.stop()
        await asyncio.wait([serving], timeout=seconds)
        if self._under_way:
            event("requests_cut_off", logging.WARNING, number=len(self._under_way))
        for task in self._under_way:
            task.cancel()
        await asyncio.wait([serving], timeout=1.0)
        await asyncio.sleep(0.1)  # Granian's own threads end a moment later, and complain if Python has ended before

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            with self._connections.request(peer_of(scope)):
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            pass  # by ``close``: Granian would print a traceback
        finally:
            self._under_way.discard(task)

    def _init_shared_socket(self) -> None:
        self._shd = SocketHolder(self._listener.detach(), False, _BACKLOG)  # pyright: ignore[reportCallIssue]
        self._sfd = self._shd.get_fd()


def listen(host: str, port: int, advice: str = "set service.host or service.port") -> socket.socket:
    """Return a socket that listens at an address.

    ``advice`` ends the message if that fails.
    """
    try:
        listener = socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        problem = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise OffbeatError(f"cannot listen at {host}:{port}: {problem}: {advice}") from None
    # Accepted connections inherit it, so those of clients that have vanished are closed.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return listener


def raise_file_limit() -> int:
    """Return the soft limit of open files, raised as far as the hard one allows."""
    if sys.platform == "win32":
        return _LARGEST_LIMIT
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LARGEST_LIMIT if hard == resource.RLIM_INFINITY else min(hard, _LARGEST_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS has another, lower limit
            return soft
        return wanted
    return _LARGEST_LIMIT if soft == resource.RLIM_INFINITY else soft


def max_connections(limit: int) -> int:
    """Return how many connections a server may accept that may open ``limit`` files."""
    connections = (limit - _RESERVE) // _FILES_PER_CONNECTION
    if connections < _MIN_CONNECTIONS:
        raise OffbeatError(
            f"this process may have {limit} files open, too few for a server: run `ulimit -n 1024` first"
        )
    return min(connections, _MAX_CONNECTIONS)


class UnreadBody:
    """An ASGI middleware that closes connections whose request body is left unread.

    It adds ``Connection: close`` to an answer that comes before the end of the body.

    The HTTP server closes the connection without reading the rest. Without the header a client would send its next
    request over the closing connection (RFC 9112, section 9.3).

    The message with the last announced byte ends the body, and a request without a body is not asked for one: to wait
    for the HTTP server's empty last message costs a small request as much as its body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        watched = _WatchedBody(_announced_bytes(scope), receive, send)
        return self._app(scope, watched.receive, watched.send)


class _WatchedBody:
    """A request's body as it arrives, in less memory than functions would take."""

    __slots__ = ("_has_ended", "_left", "_receive", "_send")

    def __init__(self, left: float, receive: Receive, send: Send) -> None:
        self._left = left
        self._has_ended = False
        self._receive = receive
        self._send = send

    def receive(self) -> Awaitable[Message]:
        """Return the next message, after the body the server's own."""
        return self._receive() if self._has_ended else self._next()

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message, with the header if the body has not ended."""
        if self._left > 0 and not self._has_ended and message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        return self._send(message)

    async def _next(self) -> Message:
        if self._left <= 0:
            self._has_ended = True
            return {"type": "http.request", "body": b"", "more_body": False}
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._has_ended = self._left <= 0 or not message.get("more_body", False)
            message["more_body"] = not self._has_ended
        return message


def _announced_bytes(scope: Scope) -> float:
    """Return the length of a request's body; infinity if it comes in chunks."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return math.inf  # whatever length is announced beside it
    return int(headers.get(b"content-length", b"0"))
