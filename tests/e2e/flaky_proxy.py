"""A bad connection between clients and a server.

Messages over it are cut off, lost, late, or sent twice.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from tests.e2e.http_line import READ_LIMIT, exchange, send_beginning, unless_gone, until_gone
from tests.e2e.http_message import Answer, Request
from tests.e2e.trouble import Pack, Trouble
from tests.e2e.witness import Moment, Witness

T = TypeVar("T")

_WRITING_SECONDS = 0.05  # about so long clients take to write something down
_NOTHING = Answer(b"")


@dataclass
class _Held:
    """A request that the server gets later."""

    request: Request
    trouble: Trouble
    after: int  # so many more requests of its client


class FlakyProxy:
    """Passes requests on, in a thread of its own while the context lasts; counts the troubles in ``done``."""

    def __init__(self, port: int, seed: int) -> None:
        self.done: Counter[tuple[str, Trouble]] = Counter()
        self.witness = Witness()
        self._port = port
        self._random = random.Random(seed)
        self._packs: dict[str, Pack] = {}
        self._held: dict[str, list[_Held]] = {}  # by token
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._wait(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=READ_LIMIT))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def deliver(self) -> None:
        """Let the server have all that is still late."""
        self._wait(self._deliver())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self._keep(asyncio.create_task(work))

    def _keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._keep(task)
        with closing(writer), suppress(OSError):
            while (request := await Request.read(reader)) is not None:
                answer = await self._answer(request, reader)
                if request.kind == "download" and self.witness.awaits(Moment.IN_MID_DOWNLOAD):
                    answer = answer.beginning(0.5)
                writer.write(answer.for_a_line_that_stays())
                await writer.drain()
                if not answer.is_whole:
                    if request.kind == "download" and self.witness.awaits(Moment.IN_MID_DOWNLOAD):
                        await self._let_it_write()
                        if self.witness.is_now(Moment.IN_MID_DOWNLOAD, request):
                            await until_gone(reader)
                    return
                if answer.receipt is not None and self.witness.awaits(Moment.RECEIPT_HEARD):
                    await self._let_it_write()
                    self.witness.is_now(Moment.RECEIPT_HEARD, request)
                self._count_down(request.token)

    async def _let_it_write(self) -> None:
        # It is to be killed at any moment while it writes down what it has heard, so there is none to be awaited.
        await asyncio.sleep(self._random.uniform(0.0, _WRITING_SECONDS))

    async def _answer(self, request: Request, line: asyncio.StreamReader) -> Answer:
        """Return what the client gets to hear, which may end too early."""
        if request.kind in ("upload", "rest") and self.witness.awaits(Moment.IN_MID_UPLOAD):
            await send_beginning(self._port, request.beginning(0.5))
            if self.witness.is_now(Moment.IN_MID_UPLOAD, request):
                await until_gone(line)
            return _NOTHING
        if not request.is_whole:
            await send_beginning(self._port, request.whole())
            return _NOTHING
        return await self._in_trouble(request, line)

    async def _in_trouble(self, request: Request, line: asyncio.StreamReader) -> Answer:
        trouble = self._packs.setdefault(request.kind, Pack(request.kind, self._random)).deal()
        answer = _NOTHING
        if trouble is Trouble.WAIT:
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
        if trouble is Trouble.CUT:
            await send_beginning(self._port, request.beginning(self._random.random()))
        elif trouble is Trouble.TWICE:
            answer = await self._twice(request, line)
        elif trouble is not Trouble.LATE:
            answer = await self._pass(request, line)
        if trouble in (Trouble.AGAIN, Trouble.LATE):
            held = _Held(request, trouble, self._random.randrange(1, 3 if request.kind == "heartbeat" else 7))
            self._held.setdefault(request.token, []).append(held)
        else:
            self.done[request.kind, trouble] += 1
        return answer.beginning(self._random.random()) if trouble is Trouble.LOSE_ANSWER else answer

    async def _twice(self, request: Request, line: asyncio.StreamReader) -> Answer:
        other = self._begin(self._pass(request))
        answer = await self._pass(request, line)
        return await unless_gone(other, line) if self._random.random() < 0.5 else answer

    async def _pass(self, request: Request, line: asyncio.StreamReader | None = None) -> Answer:
        """Let the server have a request and return its answer, as far as it comes."""
        try:
            answer = await unless_gone(exchange(self._port, request), line)
        except OSError:
            return _NOTHING
        if answer.is_whole:
            self.witness.note(request, answer)
        return answer

    def _count_down(self, token: str) -> None:
        """Note that a client has gone on, and let the server have what is late enough now."""
        for late in list(self._held.get(token, ())):
            late.after -= 1
            if late.after <= 0:
                self._held[token].remove(late)
                self._begin(self._send_late(late))

    async def _send_late(self, late: _Held) -> None:
        try:
            answer = await exchange(self._port, late.request)
        except OSError:
            late.after = 1
            self._held[late.request.token].append(late)
            return
        self.done[late.request.kind, late.trouble] += 1
        if answer.is_whole:
            self.witness.check(late.request, answer)

    async def _deliver(self) -> None:
        for late in [late for held in self._held.values() for late in held]:
            await self._send_late(late)
        self._held.clear()
