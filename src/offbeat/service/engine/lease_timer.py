"""The timer of leases and periods."""

import asyncio
import math

from offbeat.service.engine.engine import Engine

_MAX_SLEEP = 0.1  # seconds; leases that begin during a sleep are noticed soon enough
_MIN_SLEEP = 0.001


class LeaseTimer:
    """Lets leases lapse and the algorithm's periods pass.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._period = engine.coordinator.algorithm.period
        self._next_tick = engine.run.now + (self._period or math.inf)

    async def run(self) -> None:
        """Keep time; never returns."""
        engine, run = self._engine, self._engine.run
        was_finished = run.is_finished
        while True:
            due = min(engine.coordinator.next_lapse(), self._next_tick)
            seconds = _MAX_SLEEP if run.is_finished else min(max(due - run.now, _MIN_SLEEP), _MAX_SLEEP)
            await asyncio.sleep(seconds)
            if engine.client_evaluations is not None and not run.is_paused:
                engine.client_evaluations.pass_time()
            # An evaluation may have ended the run, so that waiting clients may leave.
            has_ended = run.is_finished and not was_finished
            was_finished = run.is_finished
            if engine.must_assign or has_ended or (due <= run.now and not run.is_finished):
                async with engine.lock:
                    self._pass_time()
                    await engine.try_to_assign()

    def _pass_time(self) -> None:
        now = self._engine.run.now
        self._engine.coordinator.lapse(now)
        if self._period is not None and self._next_tick <= now:
            self._engine.coordinator.tick(now)
            # Periods that were missed are not made up for.
            self._next_tick += self._period * max(1, math.ceil((now - self._next_tick) / self._period))
