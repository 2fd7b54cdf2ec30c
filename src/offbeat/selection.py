"""Who is next: pools of the clients that may be given work."""

from array import array
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from offbeat.randomness import Purpose, UniformStream

_OUTSIDE = -1


class Pool(Protocol):
    """The clients that may be given work now, and a rule for which of them is next."""

    def __len__(self) -> int: ...

    def add(self, client: int) -> None:
        """Put a client in; nothing happens if it is in."""
        ...

    def discard(self, client: int) -> None:
        """Take a client out; nothing happens if it is out."""
        ...

    def pick(self) -> int:
        """Take out the client that is next. The pool must not be empty."""
        ...

    def take(self, client: int) -> None:
        """Take out this client in place of a pick, in the pool or not: what comes after it is the same."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


class UniformPool:
    """Each client in the pool is equally likely to be next. Every operation takes O(1) time.

    Args:
        clients: Number of clients N; the pool is empty to begin with.
        seed: The run's seed.
    """

    def __init__(self, clients: int, seed: int) -> None:
        self._inside = array("q")
        self._place = array("q", [_OUTSIDE]) * clients  # where in _inside a client stands
        self._stream = UniformStream(seed, Purpose.SELECTION)

    def __len__(self) -> int:
        return len(self._inside)

    def __iter__(self) -> Iterator[int]:
        return iter(self._inside)

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
        """Take out this client in place of a pick, in the pool or not: what comes after it is the same."""
        self._stream.position += 1
        self.discard(client)

    def state_dict(self) -> dict[str, Any]:
        """Return who is inside, in the order that the next picks depend on, and how many picks there were."""
        return {"inside": torch.tensor(self._inside, dtype=torch.int64), "picks": self._stream.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._inside = array("q", state["inside"].tolist())
        self._place = array("q", [_OUTSIDE]) * len(self._place)
        for place, client in enumerate(self._inside):
            self._place[client] = place
        self._stream.position = state["picks"]


POOLS: dict[str, Callable[[int, int], Pool]] = {"uniform": UniformPool}
