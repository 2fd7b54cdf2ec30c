"""Limit of each client's requests."""

import time
from collections.abc import Callable

from offbeat.service.refusal import Refusal


class RequestRate:
    """A token bucket for each client.

    A client can make ``burst`` requests at once, and ``requests_a_second`` in the long run.
    """

    def __init__(self, requests_a_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._requests_a_second = requests_a_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[int, tuple[float, float]] = {}  # by client: tokens left, and when

    def take(self, client: int) -> None:
        """Take one of the client's tokens; ``too-many-requests`` if the bucket is empty."""
        now = self._clock()
        left, then = self._buckets.get(client, (self._burst, now))
        left = min(left + (now - then) * self._requests_a_second, self._burst) - 1
        if left < 0:
            raise Refusal("too-many-requests", "too many requests: wait a while", {"Retry-After": "1"})
        self._buckets[client] = (left, now)
