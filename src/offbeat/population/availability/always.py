"""Clients that are always available."""

import math


class Always:
    """Every client is always available."""

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds``."""
        return seconds

    def next_offline(self, client: int, seconds: float) -> float:
        """Return ``math.inf``."""
        return math.inf
