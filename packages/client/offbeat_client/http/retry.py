"""Retries: exponential back-off with full jitter (Brooker, AWS blog, 2015)."""

import logging
import random
import time
from dataclasses import dataclass

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts, and the number of attempts.

    Attributes:
        first_seconds: The longest wait after the first attempt; it doubles from one attempt to the next.
        largest_seconds: The longest wait of all.
        attempts: Largest number of attempts in a row without progress; None for any number, since a client cannot know
            how long the server stays offline.
    """

    first_seconds: float = 1.0
    largest_seconds: float = 30.0
    attempts: int | None = None


class Attempts:
    """The attempts at one exchange."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failed = 0

    def failed(self, error: Exception, at_least_seconds: float = 0.0) -> None:
        """Wait before the next attempt; raise ``error`` if no attempt is left."""
        self._failed += 1
        if self._backoff.attempts is not None and self._failed >= self._backoff.attempts:
            raise error
        doublings = min(self._failed - 1, 60)
        longest = min(self._backoff.largest_seconds, self._backoff.first_seconds * 2**doublings)
        seconds = at_least_seconds + jitter(longest)
        _log.warning("%s; trying again in %.1f seconds", error, seconds)
        time.sleep(seconds)

    def progressed(self) -> None:
        """Record progress: the count begins again."""
        self._failed = 0


def jitter(seconds: float) -> float:
    """Return a random time up to ``seconds``, which does not affect any result."""
    return random.uniform(0.0, seconds)
