"""Requests byte by byte, and checks of the server's answers and folder."""

import asyncio
import hashlib
import http.client
import io
import json
import socket
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import torch
from offbeat_core.messages import PROTOCOL

from tests.service.conftest import LENGTH, Peer, Served

ONES = torch.ones(LENGTH)
NANS = torch.full((LENGTH,), float("nan"))


class _Answers(io.BufferedReader):
    """The bytes from a server; of several answers that arrive together each is read by itself."""

    def makefile(self, mode: str) -> "_Answers":
        return self

    def close(self) -> None:
        pass


class Line:
    """A connection that sends any bytes."""

    def __init__(self, server: Served, token: str | None = None) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self._answers = _Answers(self.socket.makefile("rb", buffering=0))
        self._authorization = f"Authorization: {token}\r\n" if token else ""
        self._method = "GET"

    def begin(self, method: str, path: str, *headers: str, length: int | None = None) -> None:
        """Send the head of a request."""
        self._method = method
        host = [] if any(header.startswith("Host:") for header in headers) else ["Host: server"]
        lines = [f"{method} {path} HTTP/1.1", *host, f"Offbeat-Protocol: {PROTOCOL}", *headers]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        self.send(("\r\n".join(lines) + "\r\n" + self._authorization + "\r\n").encode("latin-1"))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> httpx.Response:
        """Return the next answer."""
        with closing(http.client.HTTPResponse(self._answers, method=self._method)) as answer:
            answer.begin()
            return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())

    def close(self) -> None:
        self._answers.raw.close()
        self.socket.close()


@contextmanager
def line(server: Served, peer: Peer | None = None) -> Generator[Line]:
    """Open a connection, with a client's token or without any."""
    with closing(Line(server, peer.http.headers["authorization"] if peer else None)) as opened:
        yield opened


def ask(server: Served, peer: Peer | None, method: str, path: str, *headers: str, body: bytes = b"") -> httpx.Response:
    """Make one request over a connection of its own."""
    with line(server, peer) as opened:
        opened.begin(method, path, "Connection: close", *headers, length=len(body) if body else None)
        if body:
            opened.send(body)
        return opened.answer()


def kind_of(answer: httpx.Response, status: int) -> str:
    """Check that an answer is a problem of one line with this status; return its kind."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert "\n" not in problem["detail"]
    return problem["kind"]


def begin_upload(opened: Line, peer: Peer, visit: dict[str, Any], body: bytes, *, offset: int = 0, end: int) -> None:
    """Send the head of an upload of ``body[offset:end]``."""
    header = json.dumps(peer.head(visit, body))
    opened.begin(
        "PUT",
        f"/v1/uploads/{visit['number']}",
        f"Offbeat-Update: {header}",
        f"Upload-Offset: {offset}",
        length=end - offset,
    )


def put_in_pieces(peer: Peer, visit: dict[str, Any], body: bytes, **changes: Any) -> httpx.Response:
    """Upload a small body in two parts, so that the server treats it as a large one."""
    head = peer.head(visit, body, **changes)
    first = peer.put(visit, body[:10], head=head)
    assert first.status_code == 202, first.text
    return peer.put(visit, body, offset=10, head=head)


def put_at_once(server: Served, peer: Peer, visit: dict[str, Any], bodies: list[bytes]) -> list[httpx.Response]:
    """Upload each body over a connection of its own: first all but the last bytes, then the last bytes together."""
    with ExitStack() as stack:
        opened = [stack.enter_context(line(server, peer)) for _ in bodies]
        for each, body in zip(opened, bodies, strict=True):
            begin_upload(each, peer, visit, body, end=len(body))
            each.send(body[:-1])
        for each, body in zip(opened, bodies, strict=True):
            each.send(body[-1:])
        return [each.answer() for each in opened]


def snapshot(server: Served) -> Any:
    """Return all that a refused request must leave unchanged."""
    engine = server.service.engine
    files = {str(path): path.stat().st_size for path in (server.folder / "updates").iterdir()}
    return engine.log_writer.number, asdict(engine.coordinator.statistics), files


def check_log(folder: Path) -> None:
    """Check that each row that a restart would read finds its update, and that none is logged twice."""
    checkpoint = max(int(path.stem) for path in (folder / "checkpoints").glob("*.safetensors"))
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        columns = "SELECT number, arguments, blob, body, digest FROM log"
        rows = database.execute(f"{columns} LEFT JOIN bodies USING (number) WHERE name = 'receive'")
        visits = set()
        for number, arguments, blob, body, digest in rows:
            values = json.loads(arguments)
            visit = values["client"], values["visit"]
            assert visit not in visits, f"{visit} was applied twice"
            visits.add(visit)
            if number > checkpoint and values["outcome"][0]:
                body = body or (folder / "updates" / blob).read_bytes()
                assert hashlib.sha256(body).hexdigest() == digest, f"the update of {visit} is another one now"


def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def check_progress(server: Served, peers: list[Peer]) -> None:
    """Check that the updates of honest clients count."""
    before = server.service.engine.coordinator.statistics.counted
    for peer in peers:
        visit = peer.check_in()
        assert visit is not None
        assert peer.send(visit, ONES)["counted"]
    assert server.service.engine.coordinator.statistics.counted == before + len(peers)
    assert server.admin.http.get("/v1/status").status_code == 200


@contextmanager
def locked(server: Served) -> Generator[None]:
    """Hold the engine's lock, as the making of a large version does."""
    lock = server.service.engine.lock
    asyncio.run_coroutine_threadsafe(lock.acquire(), server.loop).result(10)
    try:
        yield
    finally:
        server.loop.call_soon_threadsafe(lock.release)
