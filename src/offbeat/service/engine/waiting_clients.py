"""Clients that wait for work."""

import asyncio

from offbeat.coordinator.calls import Assignment

WorkFuture = asyncio.Future[Assignment | None]
"""The answer to a waiting client: its work, or None for no work."""


class WaitingClients:
    """At most one waiting request for each client; all methods are for the event loop."""

    def __init__(self) -> None:
        self._futures: dict[int, WorkFuture] = {}

    def __len__(self) -> int:
        """Return the number of waiting clients."""
        return len(self._futures)

    def add(self, client: int) -> WorkFuture:
        """Let a client wait for work.

        An earlier request of the client is answered that there is no work.
        """
        before = self._futures.get(client)
        if before is not None and not before.done():
            before.set_result(None)  # its connection has broken, or the client would not ask again
        future: WorkFuture = asyncio.get_running_loop().create_future()
        self._futures[client] = future
        return future

    def remove(self, client: int, future: WorkFuture) -> bool:
        """End a request; return whether its client is left without work.

        A client with a later waiting request is not left without work.
        """
        if self._futures.get(client) is not future:
            return False
        del self._futures[client]
        return not future.done() or future.result() is None

    def give(self, assignment: Assignment) -> None:
        """Answer the client's request with an assignment.

        A client without a request gets the same work when it asks again.
        """
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
