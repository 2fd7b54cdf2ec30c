"""Ctrl-C and SIGTERM: a run stops where it can be resumed."""

import os
import signal
from functools import cache
from types import FrameType
from typing import Any, Self

CHECKPOINT_SECONDS = 30.0  # real time between two moments from which a killed run resumes


class InterruptedRunError(Exception):
    """A signal stopped a run, which can be resumed."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = number


@cache
def let_children_end() -> None:
    """Let forked processes end at SIGTERM, such as those of a user's ``Pool``.

    They would inherit a handler that only records it, and their parent would wait without end.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


class Interruption:
    """A context in which the first SIGINT or SIGTERM is only recorded.

    The second ends the program.

    Attributes:
        signal: The signal that came; None if none has.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        let_children_end()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def check(self) -> None:
        """Raise ``InterruptedRunError`` if a signal has come."""
        if self.signal is not None:
            raise InterruptedRunError(self.signal)

    def _record(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
