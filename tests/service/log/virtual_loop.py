"""An event loop in virtual time, whose order of events a seed decides."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs coroutines that wait for each other and for time, and for nothing else.

    Of all callbacks that are ready any may come first. When none is, time goes on to the next timer at once.
    """

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._now = 0.0
        self._random = random
        self._selector = self

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "all wait for each other"
        self._now += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        pass

    def _run_once(self) -> None:
        ready = list(self._ready)
        self._random.shuffle(ready)
        self._ready = deque(ready)
        super()._run_once()


def run_virtually(main: Coroutine[Any, Any, T], random: Random) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random)) as runner:
        return runner.run(main)
