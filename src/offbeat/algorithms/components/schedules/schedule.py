"""Schedules: clients at work, free slots, and when a buffer may close."""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Any

import torch

from offbeat.algorithms.components.component import Component, RunFacts


class EarlierStarts(Collection[int]):
    """The clients at work that began before a version, the earliest first.

    It changes with the schedule. To ask for one client, or whether there is any, takes the same time however many are
    at work.
    """

    def __init__(self, versions: Mapping[int, int], version: int) -> None:
        self._versions = versions  # in the order of their values
        self._version = version

    def __contains__(self, client: object) -> bool:
        start = self._versions.get(client)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return start is not None and start < self._version

    def __iter__(self) -> Iterator[int]:
        return takewhile(lambda client: self._versions[client] < self._version, self._versions)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)


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
        # In the order of assignment, which is that of versions. A plain dict is slow where its first entries go first.
        self._versions: OrderedDict[int, int] = OrderedDict()
        self._lapsed: dict[int, int] = {}

    def grow(self, clients: int) -> None:
        """Let the run have so many clients, more than before."""
        self.clients = clients

    @property
    def number(self) -> int | None:
        """The number of the open round or period; None if clients may return at any time."""
        return None

    @property
    def at_work(self) -> int:
        """The number of clients at work whose leases have not ended."""
        return len(self._versions)

    @abstractmethod
    def slots(self) -> int:
        """Return how many clients are wanted now, beyond those already assigned."""

    def returns_in(self, client: int) -> int | None:
        """Return the round in which a client that had its turn may be assigned again."""
        return self.number

    def assign(self, client: int, version: int) -> None:
        """Record that the client works from ``version``; a ``ValueError`` if it may not.

        No call names an earlier version than the call before.
        """
        self._lapsed.pop(client, None)
        self._versions[client] = version
        self._versions.move_to_end(client)

    def wants(self, client: int, version: int) -> bool:
        """Return whether the client's update from ``version`` is expected."""
        return self._versions.get(client, self._lapsed.get(client)) == version

    def hear(self, client: int) -> bool:
        """Record the client's update; return whether the buffer may close now."""
        if self._lapsed.pop(client, None) is None:
            del self._versions[client]
        return True

    def lose(self, client: int, version: int) -> bool:
        """Free the client's slot; return whether the buffer may close now."""
        if self._versions.get(client) != version:
            return False
        self._lapsed[client] = self._versions.pop(client)
        return True

    def tick(self) -> bool:
        """Let a period or a round end; return whether the buffer may close now."""
        return False

    def close(self) -> None:
        """End the open round; only where there are rounds."""

    def open(self) -> None:
        """Open the next round; only where there are rounds."""

    def before(self, version: int) -> EarlierStarts:
        """Return the clients at work, not lapsed, that began from an earlier version."""
        return EarlierStarts(self._versions, version)

    def state_dict(self) -> dict[str, Any]:
        """Return the clients at work, as three tensors of one length."""
        clients, versions = [*self._versions, *self._lapsed], [*self._versions.values(), *self._lapsed.values()]
        return {
            "clients": torch.tensor(clients, dtype=torch.int64),
            "versions": torch.tensor(versions, dtype=torch.int64),
            "lapsed": torch.tensor([client in self._lapsed for client in clients], dtype=torch.bool),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        columns = (state[name].tolist() for name in ("clients", "versions", "lapsed"))
        rows = list(zip(*columns, strict=True))
        self._versions = OrderedDict((client, version) for client, version, is_lapsed in rows if not is_lapsed)
        self._lapsed = {client: version for client, version, is_lapsed in rows if is_lapsed}


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

    def grow(self, clients: int) -> None:
        super().grow(clients)
        self._places = min(self.concurrency, clients)

    def slots(self) -> int:
        return self._places - self.at_work
