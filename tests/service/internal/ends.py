"""Both ends of the connection between a front and the leader, for tests."""

import asyncio
import json
import struct
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from offbeat_core.messages import Beat, CheckedIn
from pydantic import BaseModel

from offbeat.service.internal.answers import CheckInAnswer, Farewell
from offbeat.service.internal.channel import Address
from offbeat.service.internal.front_endpoint import FrontEndpoint
from offbeat.service.internal.leader_channel import LeaderChannel
from offbeat.service.internal.leader_connection import LeaderConnection
from offbeat.service.internal.questions import CheckIn, Question, RenewLease

Answers = Callable[[Question[Any]], Awaitable[BaseModel]]
RUN = "0123456789abcdef"
TOKEN = "a" * 64
FRONT = "b" * 32
BEAT = Beat(wanted=True, lease_seconds=2.5, urgent=False)
NO_WORK = CheckInAnswer(checked_in=CheckedIn(visit=None, retry_after_seconds=5.0, finished=False), check=None)
HELLO = {"kind": "hello", "protocol": 1, "front": FRONT}
LEASE = RenewLease(token=TOKEN, visit=3)
WELCOME = {"epoch": 1, "messages": [{"id": None, "body": 0, "welcome": {"run": RUN}}]}


async def until(condition: Callable[[], Any], seconds: float = 8.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def beat(question: Question[Any], has_waited: bool = False) -> BaseModel:
    """Answer questions of two kinds."""
    return NO_WORK if isinstance(question, CheckIn) else BEAT


class _Fronts(dict[str, Any]):
    """The fronts of a leader, and the ids of those that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[str] = []

    def __delitem__(self, front: str) -> None:
        super().__delitem__(front)
        self.gone.append(front)


class Leader:
    """A leader's end at a socket, with what happened to it."""

    def __init__(self, handler: Answers, run: str = RUN) -> None:
        self.questions: list[Question[Any]] = []

        async def answer(question: Question[Any], has_waited: bool) -> BaseModel:
            self.questions.append(question)
            return await handler(question)

        self.endpoint = FrontEndpoint(run, answer)
        self.endpoint.fronts = fronts = _Fronts()
        self.gone = fronts.gone


@asynccontextmanager
async def leading(
    address: Address, handler: Answers = beat, *, epoch: int | None = 1, context: Any = None, run: str = RUN
) -> AsyncGenerator[Leader]:
    """Serve fronts within the context."""
    leader = Leader(handler, run)
    if epoch is not None:
        leader.endpoint.lead(epoch)
    await leader.endpoint.listen(address, context)
    try:
        yield leader
    finally:
        # If a server is closed while it accepts a connection, asyncio of Python 3.11 never closes that.
        await asyncio.sleep(0.02)
        await leader.endpoint.close("the test is over")
        if isinstance(address, Path):
            address.unlink(missing_ok=True)


class _Connection(LeaderConnection):
    """A connection that keeps the epochs of the leaders that have accepted it."""

    def __init__(self, addresses: list[Address], certificates: Any) -> None:
        super().__init__(addresses, certificates)
        self.epochs: list[int] = []

    def accept(self, channel: LeaderChannel, epoch: int) -> None:
        self.epochs.append(epoch)
        super().accept(channel, epoch)


class Front:
    """A front's end, with the epoch of each connection that a leader has accepted."""

    def __init__(self, addresses: list[Address], certificates: Any = None) -> None:
        self.connection = _Connection(addresses, certificates)
        self.epochs = self.connection.epochs

    async def ask(self, question: Question[Any]) -> Any:
        return await self.connection.ask(question)


@asynccontextmanager
async def fronting(*addresses: Address, certificates: Any = None, waits: bool = True) -> AsyncGenerator[Front]:
    """Keep a connection within the context; it is open at first unless told otherwise."""
    front = Front(list(addresses), certificates)
    keeping = asyncio.create_task(front.connection.run())
    try:
        if waits:
            await until(lambda: front.connection.is_connected)
        yield front
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


class Raw:
    """The bytes of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = 0
        self._messages: deque[dict[str, Any]] = deque()

    def send(self, batch: Any, bodies: bytes = b"") -> bytes:
        """Send a frame; return it."""
        head = batch if isinstance(batch, bytes) else json.dumps(batch).encode()
        frame = struct.pack(">II", len(head) + len(bodies), len(head)) + head + bodies
        self.writer.write(frame)
        return frame

    def ask(self, number: int, content: Any, body: bytes = b"") -> bytes:
        """Send a question in a frame of its own; return the frame."""
        return self.send({"messages": [{"id": number, "body": len(body), "content": content}]}, body)

    async def read(self) -> dict[str, Any]:
        """Return the next message, with the epoch and its body."""
        while not self._messages:
            size, head = struct.unpack(">II", await self.reader.readexactly(8))
            frame = await self.reader.readexactly(size)
            batch = json.loads(frame[:head])
            self.frames += 1
            for message in batch["messages"]:
                end = head + message["body"]
                self._messages.append(message | {"epoch": batch.get("epoch"), "bytes": frame[head:end]})
                head = end
        return self._messages.popleft()

    async def rest(self) -> bytes:
        """Return what comes until the other end closes the connection."""
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                return await self.reader.read()
            return b""


@asynccontextmanager
async def raw(path: Path, *, hello: Any = HELLO) -> AsyncGenerator[Raw]:
    """Connect to a leader; say hello, unless it is None."""
    end = Raw(*await asyncio.open_unix_connection(str(path)))
    try:
        if hello is not None:
            end.ask(1, hello)
            assert "welcome" in await end.read()
        yield end
    finally:
        await closed(end.writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def false_leader(path: Path, serve: Callable[[Raw], Awaitable[None]]) -> AsyncGenerator[None]:
    """Serve a front by hand within the context."""

    tasks: set[asyncio.Task[None]] = set()

    async def work(end: Raw) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await serve(end)
        finally:
            await closed(end.writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(work(Raw(reader, writer))))

    server = await asyncio.start_unix_server(accept, str(path))
    try:
        yield
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        path.unlink(missing_ok=True)


def farewell(kind: str) -> dict[str, Any]:
    """Return a leader's last message as JSON."""
    return json.loads(Farewell.model_validate({"kind": kind, "reason": "the test"}).model_dump_json())
