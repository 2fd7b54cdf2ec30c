"""Ctrl-C and SIGTERM: a run is asked to stop, and stops where it can go on later."""

import signal
from types import FrameType
from typing import Any, Self


class InterruptedRunError(Exception):
    """A run was asked to stop; it can be resumed.

    Attributes:
        signal: Which signal it was.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = number


class Interruption:
    """Within it, SIGINT and SIGTERM only set ``asked``; the second one ends the program as ever.

    Attributes:
        asked: The signal that came; None if none has.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def check(self) -> None:
        """Raise ``InterruptedRunError`` if a signal has come."""
        if self.asked is not None:
            raise InterruptedRunError(self.asked)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.asked = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
