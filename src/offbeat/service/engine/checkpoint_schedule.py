"""The schedule of checkpoints: by time, by bytes, and when the disk is full."""

import asyncio
from collections.abc import Awaitable, Callable

from offbeat.service.engine.engine import Engine
from offbeat.service.refusal import Refusal

_SHARE = 0.05  # of the time that goes into checkpoints, at most
_LOOK_SECONDS = 0.5  # how often it is looked whether one is due


class CheckpointSchedule:
    """Has a checkpoint made when one is due and the log has grown.

    On a disk that is full one is due at once, since it frees what it covers; after that, or if it cannot be made, the
    reserve is asked back, with which the disk is not full any more.

    Args:
        engine: The engine.
        make: Makes a checkpoint.
        seconds: Between two checkpoints.
        most_bytes: Of updates that are stored between two checkpoints.
    """

    def __init__(self, engine: Engine, make: Callable[[], Awaitable[None]], *, seconds: float, most_bytes: int) -> None:
        self._engine = engine
        self._make = make
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._number, self._stored = engine.journal.number, engine.stored_bytes  # at the last one
        self._ended, self._took = engine.now, 0.0

    async def run(self) -> None:
        """Make checkpoints; never returns."""
        while True:
            await asyncio.sleep(min(self._seconds, _LOOK_SECONDS))
            was_full = self._engine.disk.problem is not None
            if self._engine.journal.number != self._number and self._is_due(was_full):
                await self._try()
            if was_full and not self._engine.journal.is_blocked:
                await self._end_pause()

    async def _end_pause(self) -> None:
        disk, size = self._engine.disk, self._engine.reserve_size
        if not await asyncio.to_thread(disk.keep_reserve, size):
            self._engine.journal.truncate()

    def _is_due(self, is_full: bool) -> bool:
        passed = self._engine.now - self._ended
        if is_full:
            return passed >= self._took
        if passed < self._took / _SHARE:
            return False
        return passed >= self._seconds or self._engine.stored_bytes - self._stored >= self._most_bytes

    async def _try(self) -> None:
        engine, began = self._engine, self._engine.now
        number, stored = engine.journal.number, engine.stored_bytes
        try:
            await self._make()
            self._number, self._stored = number, stored
        except OSError as error:
            engine.disk.refusal(error)  # if it passes, the last checkpoint is still there
        except Refusal:
            pass  # the same
        self._ended, self._took = engine.now, engine.now - began
