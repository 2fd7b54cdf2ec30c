"""A sleep that ends early when something is due earlier."""

import asyncio
import math
from contextlib import suppress


class Alarm:
    """The sleep of a timer; all methods are for the event loop.

    A ring while the timer is awake ends its next sleep at once.
    """

    def __init__(self) -> None:
        self._rings = asyncio.Event()
        self._due = -math.inf  # nothing is earlier for a timer that is awake

    def expect(self, due: float) -> None:
        """End the sleep if it would last beyond ``due``, in the run's seconds."""
        if due < self._due:
            self.ring()

    def ring(self) -> None:
        """End the sleep."""
        self._rings.set()

    async def sleep(self, due: float, seconds: float) -> None:
        """Sleep for some seconds, until something is due; shorter after a ring."""
        self._due = due
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._rings.wait()
        finally:
            self._due = -math.inf
        self._rings.clear()
