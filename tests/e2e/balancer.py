"""A balancer in front of several servers: it asks each whether it is ready, and sends connections to one that is."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 0.5
_BLOCK = 2**16


class Balancer:
    """Passes on TCP connections within its context, and cuts them when their server is not ready any more."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.port = 0
        self.ready: set[int] = set()
        self._ports = ports
        self._tasks: dict[int, set[asyncio.Task[None]]] = {port: set() for port in ports}
        self._writers: set[asyncio.StreamWriter] = set()
        self._has_begun = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()
        self._has_begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        looks = [asyncio.create_task(self._look(port)) for port in self._ports]
        self._has_begun.set()
        await self._end.wait()
        server.close()
        left = [*looks, *(task for tasks in self._tasks.values() for task in tasks)]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _look(self, port: int) -> None:
        while True:
            if await self._is_ready(port):
                self.ready.add(port)
            else:
                self.ready.discard(port)
                for task in self._tasks[port]:
                    task.cancel()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _is_ready(self, port: int) -> bool:
        writer = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                self._writers.add(writer)
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\n\r\n")
                return b" 200 " in await reader.readline()
        except (OSError, TimeoutError):
            return False
        finally:
            if writer is not None:
                writer.transport.abort()
                self._writers.discard(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        for port in self.ready:
            task = asyncio.create_task(self._pass_on(port, reader, writer))
            self._tasks[port].add(task)
            task.add_done_callback(self._tasks[port].discard)
            return
        writer.close()

    async def _pass_on(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        copies: list[asyncio.Task[None]] = []
        try:
            source, other = await asyncio.open_connection("127.0.0.1", port)
            self._writers.add(other)
            copies += [asyncio.create_task(_copy(reader, other)), asyncio.create_task(_copy(source, writer))]
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            other.transport.abort()
        except OSError:
            pass
        finally:
            writer.transport.abort()
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
