"""The common end of all that a server's process does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 10.0
"""The time for requests under way when a server stops."""


class CommonEnd:
    """The end of a server: by request, by an error, or with one of its tasks.

    The first one counts.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._has_come = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    def set(self, error: BaseException | None = None) -> None:
        """Let the end come."""
        if not self._has_come.is_set():
            self.error = error
            self._has_come.set()

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin a task, whose end is the end of all."""
        task = asyncio.create_task(work)
        task.add_done_callback(lambda task: self.set(None if task.cancelled() else task.exception()))
        self._tasks.append(task)
        return task

    async def wait(self) -> None:
        """Wait for the end; raise its error."""
        await self._has_come.wait()
        if self.error is not None:
            raise self.error

    async def cancel(self) -> None:
        """Cancel the tasks that have not ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Return a coroutine's result; None if ``stop`` is set before that."""
    task, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, stopping):
            each.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)
