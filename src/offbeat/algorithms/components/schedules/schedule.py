"""Schedules: clients at work, free slots, and when a buffer may close."""

from abc import abstractmethod
from typing import Any

import torch

from offbeat.algorithms.components.component import Component, RunFacts


class Schedule(Component):
    """The clients at work, each with the version that it works from; no vectors.

    A client has at most one entry; new work replaces the old one. The update of a client whose slot lapsed counts
    while ``wants`` is true.

    Attributes:
        period: Seconds between two ticks; None without a clock.
        wants_all: Whether every update counts, however late it comes.
        has_rounds: Whether a round ends as the buffer closes; no work is given out while its sealed sum waits.
    """

    period: float | None = None
    wants_all = True
    has_rounds = False

    def start(self, run: RunFacts) -> None:
        """Begin a run: no client is at work."""
        self.clients = run.clients
        self._versions: dict[int, int] = {}
        self._lapsed: set[int] = set()

    @property
    def number(self) -> int | None:
        """The number of the open round or period; None if clients may return at any time."""
        return None

    @property
    def at_work(self) -> int:
        """The number of clients at work that have not lapsed."""
        return len(self._versions) - len(self._lapsed)

    @abstractmethod
    def slots(self) -> int:
        """Return how many clients are wanted now, beyond those already assigned."""

    def returns_in(self, client: int) -> int | None:
        """Return the round in which a client that had its turn may be assigned again."""
        return self.number

    def assign(self, client: int, version: int) -> None:
        """Record that the client works from ``version``; a ``ValueError`` if it may not."""
        self._versions[client] = version
        self._lapsed.discard(client)

    def wants(self, client: int, version: int) -> bool:
        """Return whether the client's update from ``version`` is expected."""
        return self._versions.get(client) == version

    def hear(self, client: int) -> bool:
        """Record the client's update; return whether the buffer may close now."""
        del self._versions[client]
        self._lapsed.discard(client)
        return True

    def lose(self, client: int, version: int) -> bool:
        """Free the client's slot; return whether the buffer may close now."""
        if not self.wants(client, version) or client in self._lapsed:
            return False
        self._lapsed.add(client)
        return True

    def tick(self) -> bool:
        """Let a period or a round end; return whether the buffer may close now."""
        return False

    def close(self) -> None:
        """End the open round; only where there are rounds."""

    def open(self) -> None:
        """Open the next round; only where there are rounds."""

    def before(self, version: int) -> list[int]:
        """Return the clients at work, not lapsed, that began from an earlier version."""
        return [client for client, start in self._versions.items() if start < version and client not in self._lapsed]

    def state_dict(self) -> dict[str, Any]:
        """Return the clients at work, as three tensors of one length."""
        clients = list(self._versions)
        return {
            "clients": torch.tensor(clients, dtype=torch.int64),
            "versions": torch.tensor(list(self._versions.values()), dtype=torch.int64),
            "lapsed": torch.tensor([client in self._lapsed for client in clients], dtype=torch.bool),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        clients = state["clients"].tolist()
        self._versions = dict(zip(clients, state["versions"].tolist(), strict=True))
        self._lapsed = {client for client, lapsed in zip(clients, state["lapsed"].tolist(), strict=True) if lapsed}


class NoSchedule(Schedule):
    """The schedule of an algorithm that implements the whole contract by itself."""

    wants_all = False

    def slots(self) -> int:
        return 0


class Continuous(Schedule):
    """Clients come and go; the buffer may close after every update and every loss.

    Args:
        concurrency: Clients at work at the same time; all of them if there are fewer.
    """

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._places = min(self.concurrency, run.clients)

    def slots(self) -> int:
        return self._places - len(self._versions) + len(self._lapsed)
