"""When to try again: exponential back-off with full jitter (Brooker, AWS Architecture Blog, 2015)."""

import logging
import random
import time
from dataclasses import dataclass

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between attempts, and how many to make.

    Attributes:
        first_seconds: The longest wait after the first attempt; it doubles from one to the next.
        largest_seconds: The longest wait of all.
        attempts: How many are made in a row without any progress; None for as many as it takes, since who comes and
            goes cannot know how long the server stays away.
    """

    first_seconds: float = 1.0
    largest_seconds: float = 30.0
    attempts: int | None = None


class Attempts:
    """The attempts at one thing."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failed = 0

    def failed(self, error: Exception, at_least_seconds: float = 0.0) -> None:
        """Wait before the next attempt; or raise ``error`` if there have been enough.

        Args:
            error: Why this one failed.
            at_least_seconds: What the server asks for.
        """
        self._failed += 1
        if self._backoff.attempts is not None and self._failed >= self._backoff.attempts:
            raise error
        doublings = min(self._failed - 1, 60)
        longest = min(self._backoff.largest_seconds, self._backoff.first_seconds * 2**doublings)
        seconds = at_least_seconds + jitter(longest)
        _log.warning("%s; trying again in %.1f seconds", error, seconds)
        time.sleep(seconds)

    def progressed(self) -> None:
        """Note that something was achieved: the count begins anew."""
        self._failed = 0


def jitter(seconds: float) -> float:
    """Return a random time up to ``seconds``.

    It is to be another one in each process, so it is none of ``offbeat.randomness``, and has no effect on any result.
    """
    return random.uniform(0.0, seconds)
