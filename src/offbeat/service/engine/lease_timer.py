"""The timer of leases, periods and evaluations by clients."""

import math

from offbeat.service.engine.engine import Engine

_MAX_SLEEP = 60.0
_MIN_SLEEP = 0.001
_RETRY_SECONDS = 0.1  # between two attempts to assign work on a full disk


class LeaseTimer:
    """Lets leases lapse, the algorithm's periods pass and clients' evaluations end.

    It sleeps until one of them is due. The run's alarm ends the sleep when a call makes something due earlier.
    The run's clock is monotonic: a change of the system's time moves nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._period = engine.coordinator.algorithm.period
        self._next_tick = engine.run.now + (self._period or math.inf)
        self._was_finished = False

    async def run(self) -> None:
        """Keep time; never returns."""
        run = self._engine.run
        while True:
            await self._do_due()
            due = self._next_due()
            await run.alarm.sleep(due, min(max(due - run.now, _MIN_SLEEP), _MAX_SLEEP))

    def _next_due(self) -> float:
        engine = self._engine
        retry = engine.run.now + _RETRY_SECONDS if engine.must_assign else math.inf
        rounds = None if engine.run.is_paused else engine.client_evaluations
        evaluations = math.inf if rounds is None else rounds.ends
        return min(retry, evaluations, self._next_lapse())

    def _next_lapse(self) -> float:
        """Return when a lease, round or period ends; never once the run is finished."""
        is_finished = self._engine.run.is_finished
        return math.inf if is_finished else min(self._engine.coordinator.next_lapse(), self._next_tick)

    async def _do_due(self) -> None:
        engine, run = self._engine, self._engine.run
        if engine.client_evaluations is not None and not run.is_paused:
            engine.client_evaluations.pass_time()
        # An evaluation may have ended the run, so that waiting clients may leave.
        has_ended = run.is_finished and not self._was_finished
        self._was_finished = run.is_finished
        if engine.must_assign or has_ended or self._next_lapse() <= run.now:
            async with engine.lock:
                if not run.is_finished:
                    self._pass_time()
                await engine.try_to_assign()

    def _pass_time(self) -> None:
        now = self._engine.run.now
        self._engine.coordinator.lapse(now)
        if self._period is not None and self._next_tick <= now:
            self._engine.coordinator.tick(now)
            # Periods that were missed are not made up for.
            self._next_tick += self._period * max(1, math.ceil((now - self._next_tick) / self._period))
