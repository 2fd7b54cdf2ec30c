"""Clients that wait for work."""

import asyncio

from offbeat.coordinator import Assignment

WorkFuture = asyncio.Future[Assignment | None]
"""The answer to a waiting client: its work, or None for no work."""


class WaitingClients:
    """The clients that wait for work; all requests of one get the same answer."""

    def __init__(self) -> None:
        self._futures: dict[int, WorkFuture] = {}
        self._requests: dict[int, int] = {}  # how many wait for the future

    def __len__(self) -> int:
        """Return the number of waiting clients."""
        return len(self._futures)

    def add(self, client: int) -> WorkFuture:
        """Let a client wait for work."""
        future = self._futures.get(client)
        if future is None or future.done():
            future = self._futures[client] = asyncio.get_running_loop().create_future()
            self._requests[client] = 0
        self._requests[client] += 1
        return future

    def remove(self, client: int, future: WorkFuture) -> bool:
        """End a request; return whether its client has neither work nor another one."""
        if self._futures.get(client) is not future:
            return False
        self._requests[client] -= 1
        if self._requests[client]:
            return False
        del self._futures[client], self._requests[client]
        return not future.done() or future.result() is None

    def give(self, assignment: Assignment) -> None:
        """Answer the client's request; without one it gets the same work later."""
        future = self._futures.get(assignment.client)
        if future is not None and not future.done():
            future.set_result(assignment)

    def release(self, client: int) -> None:
        """Answer a client's request, if there is one, that there is no work."""
        future = self._futures.get(client)
        if future is not None and not future.done():
            future.set_result(None)

    def release_all(self) -> None:
        """Answer all requests that there is no work."""
        for client in self._futures:
            self.release(client)
