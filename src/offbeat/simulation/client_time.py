"""The time that clients wait and work, all together."""

from dataclasses import dataclass
from typing import Any


@dataclass
class ClientTime:
    """Virtual seconds of all clients together.

    A client waits while it is available and has no work, and works from its assignment to the end of its visit, also
    while a visit pauses. Time that it is offline without work is neither.
    """

    clients: int
    waiting_seconds: float = 0.0
    working_seconds: float = 0.0

    def add(self, seconds: float, *, waiting: int, working: int) -> None:
        """Add a stretch in which so many clients wait and work."""
        self.waiting_seconds += waiting * seconds
        self.working_seconds += working * seconds

    @property
    def waiting_share(self) -> float | None:
        """The share of waiting in the time of both; None if there is none."""
        total = self.waiting_seconds + self.working_seconds
        return self.waiting_seconds / total if total > 0 else None

    def state_dict(self) -> dict[str, Any]:
        """Return both times."""
        return {"client_seconds": [self.waiting_seconds, self.working_seconds]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from saved times."""
        self.waiting_seconds, self.working_seconds = state["client_seconds"]
