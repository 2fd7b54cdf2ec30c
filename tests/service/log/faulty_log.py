"""A log in memory behind connections that delay, break off and lose answers, as chance decides."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from offbeat.service.log.log import LogUnavailableError, ReplacedError, Row, UnknownOutcomeError


class MemoryLog:
    """The rows, as a database keeps them."""

    def __init__(self, *, has_fence: bool = True) -> None:
        self.rows: list[Row] = []
        self._has_fence = has_fence

    def append(self, rows: Sequence[Row], after: tuple[int, int]) -> None:
        last = (self.rows[-1].number, self.rows[-1].epoch) if self.rows else (0, 0)
        if self._has_fence and last != after:
            raise ReplacedError(f"the last row is {last}, not {after}")
        self.rows.extend(rows)


class FaultyConnection:
    """A process's connection to the log: a ``Log``.

    An append whose connection breaks may still arrive much later, or never. ``stopped`` holds back all answers, as if
    the process had been stopped.
    """

    def __init__(self, log: MemoryLog, random: Random, *, faults: float = 0.2) -> None:
        self.stopped = asyncio.Event()
        self.runs = asyncio.Event()
        self.runs.set()
        self._log = log
        self._random = random
        self._faults = faults
        self._late: set[asyncio.Task[None]] = set()

    async def append(self, rows: Sequence[Row], *, after: tuple[int, int]) -> None:
        await self._delay()
        if self._happens():
            raise LogUnavailableError("no connection")
        if self._happens():
            if self._random.random() < 0.5:
                self._begin_late(self._arrive_late(list(rows), after))
            await self._delay()
            raise UnknownOutcomeError("the connection broke")
        self._log.append(rows, after)
        await self._delay()
        if self._happens():
            raise UnknownOutcomeError("the answer was lost")

    async def read(self, after: int, limit: int) -> list[Row]:
        await self._delay()
        if self._happens():
            raise LogUnavailableError("no connection")
        found = [row for row in self._log.rows if row.number > after][:limit]
        await self._delay()
        return found

    async def last_epoch(self) -> int:
        await self._delay()
        epoch = self._log.rows[-1].epoch if self._log.rows else 0
        await self._delay()
        return epoch

    async def end(self) -> None:
        """Wait until no append is under way."""
        await asyncio.gather(*self._late)

    def _begin_late(self, arrival: "asyncio._CoroutineLike[None]") -> None:  # pyright: ignore
        self._late.add(asyncio.ensure_future(arrival))

    async def _arrive_late(self, rows: list[Row], after: tuple[int, int]) -> None:
        await asyncio.sleep(self._random.expovariate(0.2))
        with suppress(ReplacedError):
            self._log.append(rows, after)

    async def _delay(self) -> None:
        await asyncio.sleep(self._random.expovariate(1.0))
        await self.runs.wait()

    def _happens(self) -> bool:
        return self._random.random() < self._faults
