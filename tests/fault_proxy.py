"""A proxy in front of an HTTP server that fails in the ways of networks and stores."""

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit


class Fault(Enum):
    """A failure in place of an answer."""

    NONE = auto()  # passed on, so that a later request fails
    FORBIDDEN = auto()  # 403, which the server did not see
    UNAVAILABLE = auto()  # 503, which the server did not see
    LATE = auto()  # no answer, and the server did not see it
    LATE_ANSWER = auto()  # the server has answered, but the answer never comes
    LOST_REQUEST = auto()  # the connection is closed, and the server did not see it
    LOST_ANSWER = auto()  # the server has answered, and the connection is closed
    SHORT_ANSWER = auto()  # the connection is closed before the last byte
    OTHER_BYTES_UP = auto()  # the request's last byte is another
    OTHER_BYTES_DOWN = auto()  # the answer's last byte is another
    UNCONDITIONAL = auto()  # the server does not see the condition If-None-Match


_STATUS = {Fault.FORBIDDEN: b"403 Forbidden", Fault.UNAVAILABLE: b"503 Service Unavailable"}


@dataclass
class _Planned:
    method: str
    fault: Fault
    times: int


class FaultProxy:
    """Passes each request on, over a connection of its own, unless a fault is planned for its method.

    ``requests`` are the methods and paths so far; ``left`` counts the requests whose sender closed the connection
    before an answer.
    """

    def __init__(self, server: str) -> None:
        self._server = urlsplit(server)
        self._planned: list[_Planned] = []
        self._tasks = set[asyncio.Task[None] | None]()
        self.address = ""
        self.requests: list[str] = []
        self.left = 0

    def plan(self, method: str, fault: Fault, times: int = 1) -> None:
        """Let the next requests of a method fail."""
        self._planned.append(_Planned(method, fault, times))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        task = asyncio.current_task()
        self._tasks.add(task)  # the event loop itself holds weak references only
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])}
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        method, path = head[0].decode().split()[:2]
        self.requests.append(f"{method} {path}")
        fault = self._fault(method)
        if fault is Fault.LATE:
            await self._hold(reader)
            return
        if fault is Fault.LOST_REQUEST:
            return
        if fault in _STATUS:
            writer.write(b"HTTP/1.1 " + _STATUS[fault] + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
            return
        if fault is Fault.OTHER_BYTES_UP:
            body = _changed(body)
        if fault is Fault.UNCONDITIONAL:
            head = [line for line in head if not line.lower().startswith(b"if-none-match:")]
        answer = await self._passed_on([*head, b"connection: close", b"", b""], body)
        if fault is Fault.LOST_ANSWER:
            return
        if fault is Fault.LATE_ANSWER:
            await self._hold(reader)
            return
        if fault is Fault.SHORT_ANSWER:
            answer = answer[:-1]
        if fault is Fault.OTHER_BYTES_DOWN:
            answer = _changed(answer)
        writer.write(answer)
        await writer.drain()

    def _fault(self, method: str) -> Fault | None:
        for planned in self._planned:
            if planned.method == method and planned.times > 0:
                planned.times -= 1
                return planned.fault
        return None

    async def _hold(self, reader: asyncio.StreamReader) -> None:
        await reader.read()
        self.left += 1

    async def _passed_on(self, head: list[bytes], body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._server.hostname, self._server.port)
        try:
            writer.write(b"\r\n".join(head) + body)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


def _changed(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@contextmanager
def fault_proxy(server: str) -> Generator[FaultProxy]:
    """Run a proxy in a thread of its own while the context lasts."""
    proxy = FaultProxy(server)
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(proxy.answer, "127.0.0.1", 0, limit=1 << 20))
    proxy.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(_until_done(loop))
        loop.close()


async def _until_done(loop: asyncio.AbstractEventLoop) -> None:
    deadline = time.monotonic() + 5
    while len(asyncio.all_tasks(loop)) > 1 and time.monotonic() < deadline:
        await asyncio.sleep(0)
    for _ in range(3):  # in which connections that were closed at last are
        await asyncio.sleep(0)
