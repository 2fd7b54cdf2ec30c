"""The protocol of availability models."""

from typing import Protocol


class Availability(Protocol):
    """The times at which each client is available.

    Times are virtual seconds, finite and at least 0. Intervals are half-open: a client is available at the start of an
    interval and offline at its end. A run calls both methods many times, so they take and return plain numbers and look
    ahead no further than necessary.
    """

    def next_available(self, client: int, seconds: float) -> float:
        """Return the earliest time ≥ seconds at which the client is available, or inf."""
        ...

    def next_offline(self, client: int, seconds: float) -> float:
        """Return the earliest time > seconds at which the client is offline, or inf.

        The client must be available at ``seconds``.
        """
        ...
