"""Clients that wait for work."""

import asyncio
from functools import partial

Turn = asyncio.Future[None]
"""Done once a waiting client is to check in again; cancelled by its owner if nobody waits any more."""


class WaitingClients:
    """The clients that wait for work, each with a turn for every request that waits.

    Attributes:
        gone: Clients whose requests have all ended without work since this was last emptied.
    """

    def __init__(self) -> None:
        self._turns: dict[int, list[Turn]] = {}
        self.gone: set[int] = set()

    def __len__(self) -> int:
        """Return the number of waiting clients."""
        return len(self._turns)

    def __contains__(self, client: int) -> bool:
        """Return whether a client waits."""
        return client in self._turns

    def add(self, client: int) -> Turn:
        """Let a client wait for work."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.setdefault(client, []).append(turn)
        self.gone.discard(client)
        turn.add_done_callback(partial(self._end, client))
        return turn

    def wake(self, client: int) -> None:
        """Let all requests of a client go on, if there are any."""
        for turn in self._turns.pop(client, ()):
            if not turn.done():
                turn.set_result(None)

    def wake_all(self) -> None:
        """Let all requests go on."""
        self.gone |= self._turns.keys()
        for client in list(self._turns):
            self.wake(client)

    def _end(self, client: int, turn: Turn) -> None:
        if turn.cancelled() and turn in self._turns.get(client, ()):
            self._turns[client].remove(turn)
            if not self._turns[client]:
                del self._turns[client]
                self.gone.add(client)
