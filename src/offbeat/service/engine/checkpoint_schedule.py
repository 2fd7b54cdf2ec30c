"""The schedule of checkpoints: by time, by bytes, and when the disk is full."""

import asyncio
from contextlib import suppress

from offbeat.service.engine.engine import Engine
from offbeat.service.engine.server_checkpoint import CheckpointWriter
from offbeat.service.refusal import Refusal

_MAX_SHARE = 0.05  # of the time that goes into checkpoints
_LOOK_SECONDS = 0.5  # between two looks whether a checkpoint is due


class CheckpointSchedule:
    """Has a checkpoint written when one is due and the log has grown.

    On a full disk a checkpoint is due at once, since it frees the files that it covers. Then, also if the checkpoint
    cannot be written, the write-ahead log is emptied, and the reserve file is made again. Once that fits, the disk no
    longer counts as full, and a version that could not be written is written: the server is ready without a request.

    Args:
        engine: The engine.
        checkpoints: Writes checkpoints.
        seconds: Between two checkpoints.
        max_bytes: Of updates that are stored between two checkpoints.
    """

    def __init__(self, engine: Engine, checkpoints: CheckpointWriter, *, seconds: float, max_bytes: int) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._number, self._stored_bytes = engine.log_writer.number, engine.calls.stored_bytes  # at the last one
        self._ended, self._took = engine.run.now, 0.0

    async def run(self) -> None:
        """Have checkpoints written; never returns."""
        while True:
            await asyncio.sleep(min(self._seconds, _LOOK_SECONDS))
            was_full = self._engine.disk.problem is not None
            if self._engine.log_writer.number != self._number and self._is_due(was_full):
                await self._try()
            if was_full and not self._engine.log_writer.is_blocked:
                await self._try_to_end_pause()
            if self._engine.publisher.problem is not None and self._engine.disk.problem is None:
                await self._publish_again()

    async def _try_to_end_pause(self) -> None:
        engine = self._engine
        # The write-ahead log is part of what fills the disk. To empty it takes space, so the reserve is kept after it.
        engine.log_writer.truncate()
        with suppress(Refusal):  # then the next look finds a log that is blocked
            await engine.log_writer.wait_until_durable(on_reserve=True)
            await asyncio.to_thread(engine.disk.keep_reserve, self._checkpoints.reserve_size)

    async def _publish_again(self) -> None:
        # A request would do so too, but a load balancer sends none until the server is ready.
        with suppress(Refusal):  # then the next look tries again
            async with self._engine.lock:
                await self._engine.publisher.publish()

    def _is_due(self, is_full: bool) -> bool:
        passed = self._engine.run.now - self._ended
        if is_full:
            return passed >= self._took
        if passed < self._took / _MAX_SHARE:
            return False
        stored = self._engine.calls.stored_bytes - self._stored_bytes
        return passed >= self._seconds or stored >= self._max_bytes

    async def _try(self) -> None:
        engine, began = self._engine, self._engine.run.now
        number, stored = engine.log_writer.number, engine.calls.stored_bytes
        try:
            await self._checkpoints.write()
            self._number, self._stored_bytes = number, stored
        except OSError as error:
            engine.disk.refusal(error)  # if it passes, the last checkpoint still holds
        except Refusal:
            pass  # the same
        self._ended, self._took = engine.run.now, engine.run.now - began
