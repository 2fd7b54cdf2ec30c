"""Client selection pools."""

import heapq
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from offbeat_core.randomness import Purpose

from offbeat.algorithms.components import Update
from offbeat.uniform_numbers import UniformStream

_OUTSIDE = -1
_NEVER = -1


class Pool(Protocol):
    """The clients that may be given work now, and a rule that picks one of them."""

    def __len__(self) -> int: ...

    def add(self, client: int) -> None:
        """Put a client in; nothing happens if it is in."""
        ...

    def discard(self, client: int) -> None:
        """Take a client out; nothing happens if it is out."""
        ...

    def pick(self) -> int:
        """Take out the next client. The pool must not be empty."""
        ...

    def take(self, client: int) -> None:
        """Take out this client, in the pool or not, as if it had been picked.

        The picks after it are the same as after such a pick.
        """
        ...

    def counted(self, update: Update) -> None:
        """Record that an update has counted."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved pool."""
        ...


class UniformPool:
    """A pool in which each client is equally likely to be next.

    Every operation takes O(1) time.

    Args:
        clients: Number of clients N; the pool is empty to begin with.
        seed: The run's seed.
    """

    def __init__(self, clients: int, seed: int) -> None:
        self._inside = array("q")
        self._place = array("q", [_OUTSIDE]) * clients  # a client's index in _inside
        self._stream = UniformStream(seed, Purpose.SELECTION)

    def __len__(self) -> int:
        return len(self._inside)

    def __iter__(self) -> Iterator[int]:
        return iter(self._inside)

    def grow(self, clients: int) -> None:
        """Know clients outside the pool, up to so many in all."""
        self._place.extend([_OUTSIDE] * (clients - len(self._place)))

    def add(self, client: int) -> None:
        """Put a client in; nothing happens if it is in."""
        if self._place[client] == _OUTSIDE:
            self._place[client] = len(self._inside)
            self._inside.append(client)

    def discard(self, client: int) -> None:
        """Take a client out; nothing happens if it is out."""
        place = self._place[client]
        if place == _OUTSIDE:
            return
        last = self._inside.pop()
        if last != client:
            self._inside[place] = last
            self._place[last] = place
        self._place[client] = _OUTSIDE

    def pick(self) -> int:
        """Take out a client at random. The pool must not be empty."""
        client = self._inside[int(self._stream.next() * len(self._inside))]
        self.discard(client)
        return client

    def take(self, client: int) -> None:
        """Take out this client, in the pool or not, as if it had been picked.

        The picks after it are the same as after such a pick.
        """
        self._stream.position += 1
        self.discard(client)

    def counted(self, update: Update) -> None:
        """Do nothing: a client that has counted is as likely as any other."""

    def state_dict(self) -> dict[str, Any]:
        """Return the clients inside, in their order, and the number of picks.

        The next picks depend on the order.
        """
        return {"inside": torch.tensor(self._inside, dtype=torch.int64), "picks": self._stream.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved pool."""
        self._inside = array("q", state["inside"].tolist())
        self._place = array("q", [_OUTSIDE]) * len(self._place)
        for place, client in enumerate(self._inside):
            self._place[client] = place
        self._stream.position = state["picks"]


class _SetPool:
    """The clients inside as a set, for pools that pick by an order."""

    def __init__(self) -> None:
        self._inside: set[int] = set()

    def __len__(self) -> int:
        return len(self._inside)

    def add(self, client: int) -> None:
        """Put a client in; nothing happens if it is in."""
        self._inside.add(client)

    def discard(self, client: int) -> None:
        """Take a client out; nothing happens if it is out."""
        self._inside.discard(client)

    def take(self, client: int) -> None:
        """Take out this client, in the pool or not, as if it had been picked."""
        self.discard(client)


class LongestAbsentPool(_SetPool):
    """A pool that picks the client whose last counted version R_i is the lowest.

    Of equals it picks the client of the lowest number. Every operation takes O(log N) time at most, on average.

    Args:
        clients: Number of clients N; the pool is empty to begin with, and no client has counted.
        seed: Not used: nothing is random.
    """

    def __init__(self, clients: int, seed: int) -> None:
        super().__init__()
        self._last = array("q", [_NEVER]) * clients  # R_i
        self._heap: list[tuple[int, int]] = []  # (R_i, i) of the clients inside, and of some that were taken out

    def add(self, client: int) -> None:
        """Put a client in; nothing happens if it is in."""
        if client not in self._inside:
            self._inside.add(client)
            heapq.heappush(self._heap, (self._last[client], client))

    def discard(self, client: int) -> None:
        """Take a client out; nothing happens if it is out."""
        self._inside.discard(client)
        self._tidy()

    def _tidy(self) -> None:
        """Remove the entries of clients that were taken out, if they are most of the heap."""
        if len(self._heap) > 2 * len(self._inside) + 64:
            self._heap = [(self._last[inside], inside) for inside in self._inside]
            heapq.heapify(self._heap)

    def pick(self) -> int:
        """Take out the next client. The pool must not be empty."""
        while True:
            last, client = heapq.heappop(self._heap)
            if client in self._inside and last == self._last[client]:
                self._inside.discard(client)
                return client

    def counted(self, update: Update) -> None:
        """Record R_i, the version that the client's last counted update was made from."""
        client = update.client
        self._last[client] = update.version
        if client in self._inside:
            heapq.heappush(self._heap, (update.version, client))
            self._tidy()

    def state_dict(self) -> dict[str, Any]:
        """Return the clients inside, and the R_i of all clients."""
        return {
            "inside": torch.tensor(sorted(self._inside), dtype=torch.int64),
            "last": torch.tensor(self._last, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved pool."""
        self._last = array("q", state["last"].tolist())
        self._inside = set(state["inside"].tolist())
        self._heap = [(self._last[client], client) for client in self._inside]
        heapq.heapify(self._heap)


class FastestPool(_SetPool):
    """A pool that picks the client with the fewest seconds a step, at its last visit.

    Clients that have not counted or not told their times come first; of equals, the client of the lowest number. A pick
    looks at all clients inside.

    Args:
        clients: Number of clients N; the pool is empty to begin with.
        seed: Not used: nothing is random.
    """

    def __init__(self, clients: int, seed: int) -> None:
        super().__init__()
        self._seconds = array("d", [0.0]) * clients

    def pick(self) -> int:
        """Take out the next client. The pool must not be empty."""
        client = min(self._inside, key=lambda one: (self._seconds[one], one))
        self._inside.remove(client)
        return client

    def counted(self, update: Update) -> None:
        """Record the seconds a step of the client's visit, with its upload."""
        upload_seconds = (update.upload_seconds or 0.0) / max(1, update.steps)
        self._seconds[update.client] = (update.step_seconds or 0.0) + upload_seconds

    def state_dict(self) -> dict[str, Any]:
        """Return the clients inside, and the seconds a step of all clients."""
        return {
            "inside": torch.tensor(sorted(self._inside), dtype=torch.int64),
            "seconds": torch.tensor(self._seconds, dtype=torch.float64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved pool."""
        self._inside = set(state["inside"].tolist())
        self._seconds = array("d", state["seconds"].tolist())


POOLS: dict[str, Callable[[int, int], Pool]] = {
    "uniform": UniformPool,
    "longest_absent": LongestAbsentPool,
    "fastest": FastestPool,
}
