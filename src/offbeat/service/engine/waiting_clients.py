"""Clients that wait for work."""

import asyncio
import math
from functools import partial

Turn = asyncio.Future[None]
"""Done once there may be work, or the time is over; cancelled by its owner if nobody waits any more."""

_TICK_SECONDS = 0.25  # all requests whose time ends within one share a timer


class WaitingClients:
    """The clients that wait for work, each with a turn for every request that waits.

    Attributes:
        gone: Clients whose requests have all ended without work since this was last emptied.
    """

    def __init__(self) -> None:
        self._turns: dict[int, list[Turn]] = {}
        self._ends: dict[int, list[Turn]] = {}  # by tick
        self.gone: set[int] = set()

    def __len__(self) -> int:
        """Return the number of waiting clients."""
        return len(self._turns)

    def __contains__(self, client: int) -> bool:
        """Return whether a client waits."""
        return client in self._turns

    def add(self, client: int, seconds: float | None = None) -> Turn:
        """Let a client wait for work, at most so many seconds and a tick."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if seconds is not None:
            tick = math.ceil((loop.time() + seconds) / _TICK_SECONDS)
            if tick not in self._ends:
                self._ends[tick] = []
                loop.call_at(tick * _TICK_SECONDS, self._pass, tick)
            self._ends[tick].append(turn)
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

    def _pass(self, tick: int) -> None:
        for turn in self._ends.pop(tick):
            if not turn.done():
                turn.set_result(None)

    def _end(self, client: int, turn: Turn) -> None:
        if turn in self._turns.get(client, ()):
            self._turns[client].remove(turn)
            if not self._turns[client]:
                del self._turns[client]
                self.gone.add(client)
