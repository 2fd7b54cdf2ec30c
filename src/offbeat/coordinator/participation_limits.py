"""Limits on how often, and how soon again, a client takes part in a sum."""

import math
from array import array
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

import torch

from offbeat.algorithms.components import Algorithm, Update

_NEVER = -1
_MOST_FAILURES = 2


class Participation:
    """A count of the sums that each client took part in, and two limits.

    Sums are numbered 1, 2, … as they are released. A client takes part in at most ``limit`` sums. It is assigned
    again once its last sum has been opened, and once its next update can be in a sum at least ``separation`` numbers
    later. It then works from a later version: the same work under another mask would show its update.

    Args:
        clients: Number of clients N.
        limit: The most sums k of a client, infinity for any number.
        separation: The smallest difference b ≥ 1 between the numbers of two sums of a client.
    """

    def __init__(self, clients: int, *, limit: float = math.inf, separation: int = 1) -> None:
        self.limit = limit
        self._limits: dict[int, int] = {}  # of clients with a smaller one
        self.separation = separation
        self._counts = array("q", [0]) * clients
        self._last = array("q", [_NEVER]) * clients  # the number of the client's last sum
        self._version = array("q", [_NEVER]) * clients  # that it worked from
        self._failures: dict[int, int] = {}  # sums with the client that could not be opened
        self._resting: list[tuple[int, int]] = []  # heap of (number from which it may come again, client)

    def counts(self) -> Sequence[int]:
        """Return in how many sums each client took part."""
        return self._counts

    def limit_of(self, client: int) -> float:
        """Return the most sums of a client."""
        return self._limits.get(client, self.limit)

    def lower(self, client: int, limit: int) -> None:
        """Lower the most sums of a client, unless fewer are allowed already."""
        if limit < self.limit_of(client):
            self._limits[client] = limit

    def allows(self, client: int, algorithm: Algorithm[Any]) -> bool:
        """Return whether the client may be assigned now."""
        if self._last[client] == _NEVER:
            return self.limit_of(client) > 0
        if self._failures.get(client, 0) >= _MOST_FAILURES:
            return False
        is_apart = algorithm.opened + 1 >= self._last[client] + self.separation
        return self._counts[client] < self.limit_of(client) and is_apart and algorithm.version > self._version[client]

    def note(self, update: Update, number: int) -> None:
        """Record that an update is in the sum of this number."""
        client = update.client
        self._counts[client] += 1
        self._last[client], self._version[client] = number, update.version
        if self._counts[client] < self.limit_of(client):
            heappush(self._resting, (number + self.separation, client))

    def move(self, client: int, number: int) -> None:
        """Record that the client's last update is in the sum of this number instead."""
        self._last[client] = number
        heappush(self._resting, (number + self.separation, client))

    def note_failure(self, clients: Sequence[int], number: int) -> None:
        """Record that a sum could not be opened because of one of these clients.

        Nobody can tell which one. So the clients come again in different sums, and a client of two failed sums is
        suspended.
        """
        for later, client in enumerate(clients, start=1):
            self._failures[client] = self._failures.get(client, 0) + 1
            self._last[client] = number + later
            heappush(self._resting, (number + later + self.separation, client))

    def suspended(self) -> list[int]:
        """Return the suspended clients, in order."""
        return sorted(client for client, failures in self._failures.items() if failures >= _MOST_FAILURES)

    def returning(self, algorithm: Algorithm[Any]) -> list[int]:
        """Return the clients that may be assigned now and could not be at the last call."""
        next_number = algorithm.opened + 1
        due: list[int] = []
        while self._resting and self._resting[0][0] <= next_number:
            due.append(heappop(self._resting)[1])
        for client in due:
            is_later = not self.allows(client, algorithm)  # for instance if there is no later version yet
            if (
                is_later
                and self._counts[client] < self.limit_of(client)
                and self._failures.get(client, 0) < _MOST_FAILURES
            ):
                heappush(self._resting, (next_number + 1, client))
        return due

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs."""
        columns = self._counts, self._last, self._version
        rows = [(client, *row) for client, row in enumerate(zip(*columns, strict=True)) if row[0]]
        return {
            "rows": torch.tensor(rows, dtype=torch.int64).reshape(-1, 4),
            "limits": torch.tensor(list(self._limits.items()), dtype=torch.int64).reshape(-1, 2),
            "failures": torch.tensor(list(self._failures.items()), dtype=torch.int64).reshape(-1, 2),
            "resting": torch.tensor(sorted(self._resting), dtype=torch.int64).reshape(-1, 2),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        clients = len(self._counts)
        self._counts = array("q", [0]) * clients
        self._last, self._version = (array("q", [_NEVER]) * clients for _ in range(2))
        for client, *row in state["rows"].tolist():
            self._counts[client], self._last[client], self._version[client] = row
        self._limits = dict(state["limits"].tolist())
        self._failures = dict(state["failures"].tolist())
        self._resting = [(number, client) for number, client in state["resting"].tolist()]  # sorted is a heap
