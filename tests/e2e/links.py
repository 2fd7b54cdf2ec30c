"""Connections between the parts of a cluster, to be cut in the middle of traffic and healed."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")

Target = Path | tuple[str, int]
"""A Unix socket's path, or a host and a port."""

_BLOCK = 2**16


class Cut(Enum):
    """The fate of connections that are cut."""

    LATE = "all arrives once the link is healed"
    LOST = "nothing arrives, and connections break once the link is healed"
    REFUSED = "connections break at once"


class Link:
    """A port of this machine from where connections lead to a target; made by ``Links``."""

    def __init__(self, target: Target) -> None:
        self.port = 0
        self._target = target
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._cut: Cut | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self, kind: Cut) -> None:
        """Let nothing more through."""
        self._cut = kind
        self._is_whole.clear()
        if kind is Cut.REFUSED:
            self._break()

    async def heal(self) -> None:
        """Let all through again."""
        if self._cut is Cut.LOST:
            self._break()
        self._cut = None
        self._is_whole.set()

    async def close(self) -> None:
        """Take no more connections, and break those that there are."""
        self._server.close()
        self._break()

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = {writer}
        self._writers |= writers
        try:
            if self._cut is Cut.REFUSED:
                return
            await self._is_whole.wait()
            if isinstance(self._target, Path):
                source, other = await asyncio.open_unix_connection(self._target)
            else:
                source, other = await asyncio.open_connection(*self._target)
            writers.add(other)
            self._writers.add(other)
            await asyncio.gather(self._pass_on(reader, other), self._pass_on(source, writer))
        except OSError:
            pass
        finally:
            self._writers -= writers
            for each in writers:
                each.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        block = b"begin"
        while block:
            block = await reader.read(_BLOCK)
            await self._is_whole.wait()
            if block:
                writer.write(block)
                await writer.drain()
        writer.close()


class Links:
    """Makes links, which work in a thread of their own while the context lasts."""

    def __init__(self) -> None:
        self._all: list[Link] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to(self, target: Target) -> Link:
        """Return a new link."""
        link = Link(target)
        self.wait(link.listen())
        self._all.append(link)
        return link

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a link's method returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _close(self) -> None:
        for link in self._all:
            await link.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
