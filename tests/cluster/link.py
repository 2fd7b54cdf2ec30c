"""A process's way to the log or the blobs, which delays, breaks and is cut, as chance decides."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, cast

from tests.cluster.virtual_loop import VirtualLoop

T = TypeVar("T")


class NotSentError(Exception):
    """A request that has no effect, now or later."""


class BrokenLinkError(Exception):
    """A request of unknown outcome: it may have an effect, now or later."""


@dataclass
class Faults:
    """The rates at which requests fail, and how long they take."""

    not_sent: float = 0.003
    broken: float = 0.006
    lost_answer: float = 0.006
    mean_seconds: float = 0.004
    slow: float = 0.01  # how many take a hundred times as long
    late_seconds: float = 1.0  # until a request of unknown outcome arrives, on average


class Link:
    """A process's connection to a service outside of it."""

    def __init__(self, random: Random, faults: Faults) -> None:
        self.is_cut = False
        self.faults = faults
        self._random = random

    async def call(self, work: Callable[[], T]) -> T:
        """Do work at the service; it may be done even if this fails, or the process dies."""
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        future: asyncio.Future[Any] = loop.create_future()
        faults = self.faults

        def fail(error: type[Exception]) -> None:
            if not future.done():
                future.set_exception(error("no connection"))

        def arrive() -> None:
            try:
                result, error = work(), None
            except Exception as caught:
                result, error = None, caught
            if self.is_cut or self._happens(faults.lost_answer):
                loop.later(self._delay(), fail, BrokenLinkError)
            else:
                loop.later(self._delay(), answer, result, error)

        def answer(result: T | None, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def arrive_late() -> None:
            with suppress(Exception):  # nobody hears of it
                work()

        if self._happens(0.9 if self.is_cut else faults.not_sent):
            loop.later(self._delay(), fail, NotSentError)
        elif self.is_cut or self._happens(faults.broken):
            if self._happens(0.5):
                loop.later(self._random.expovariate(1 / faults.late_seconds), arrive_late)
            loop.later(self._delay(), fail, BrokenLinkError)
        else:
            loop.later(self._delay(), arrive)
        return await future

    def fails_now(self) -> bool:
        """Return whether a request that waits for nothing else fails now."""
        return self.is_cut or self._happens(self.faults.not_sent)

    def _delay(self) -> float:
        slow = 100 if self._happens(self.faults.slow) else 1
        return self._random.expovariate(1.0) * self.faults.mean_seconds * slow

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability
