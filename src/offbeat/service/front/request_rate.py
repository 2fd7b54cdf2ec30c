"""The limit of requests of each client."""

import time
from collections import OrderedDict
from collections.abc import Callable

from offbeat.service.refusal import Refusal

_MOST_BUCKETS = 2**17


class RequestRate:
    """A token bucket for each client, which can make ``burst`` requests at once.

    A client is known by the SHA-256 of its token. Of many clients those that have been silent longest are forgotten.
    """

    def __init__(self, requests_a_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._requests_a_second = requests_a_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by client: tokens left, and when

    def take(self, client: str) -> None:
        """Take one of the client's tokens; ``too-many-requests`` if the bucket is empty."""
        now = self._clock()
        left, then = self._buckets.pop(client, (self._burst, now))
        left = min(left + (now - then) * self._requests_a_second, self._burst)
        is_refused = left < 1
        self._buckets[client] = (left if is_refused else left - 1, now)
        if is_refused:
            raise Refusal("too-many-requests", "too many requests: wait a while", {"Retry-After": "1"})
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
