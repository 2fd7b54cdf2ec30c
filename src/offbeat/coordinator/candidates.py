"""The clients that can be assigned.

They are available, and have a turn left in the open round.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from offbeat.algorithms.components import Algorithm, Update
from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator.participation_limits import Participation
from offbeat.coordinator.selection import POOLS, Pool


class Candidates:
    """The selection pool: available clients that the open round has not seen yet.

    Where the algorithm has rounds, a client that was assigned or heard in a round has had its turn in it. When the next
    round opens, the client may be assigned again, unless the algorithm wants it back in a later round: until then it
    rests. Where ``participation`` limits how often and how soon again a client takes part, it rests for that as well.

    Args:
        algorithm: The run's algorithm, started. Its ``selection`` makes the pool.
        clients: Number of clients N.
        seed: The run's seed.
        participation: The limits; None for none.

    Attributes:
        pool: The clients that may be assigned now, and the rule that picks one.
        idle: How many clients are available, whether they may be assigned or not.
    """

    def __init__(
        self, algorithm: Algorithm, clients: int, seed: int, participation: Participation | None = None
    ) -> None:
        selection = algorithm.selection
        self.pool: Pool = (POOLS[selection] if isinstance(selection, str) else selection)(clients, seed)
        self._algorithm = algorithm
        self._participation = participation
        self.idle = 0
        self._available = bytearray(clients)
        self._round = algorithm.round
        self._had_turn: dict[int, None] = {}  # in the order of their turns
        self._resting: dict[int, int] = {}  # the round in which each resting client may come again
        self._returning: dict[int, list[int]] = {}  # the same, by round

    @property
    def can_grow(self) -> bool:
        """True if there can be more clients later."""
        return callable(getattr(self.pool, "grow", None))

    def grow(self, clients: int) -> None:
        """Add clients, who are not available yet, up to so many in all."""
        self._available.extend(bytes(clients - len(self._available)))
        grow: Any = getattr(self.pool, "grow", None)
        grow(clients)

    @property
    def has_rounds(self) -> bool:
        """True if the algorithm has rounds."""
        return self._round is not None

    def begin(self) -> None:
        """Take over the round of an algorithm that was started anew."""
        self._round = self._algorithm.round

    def arrive(self, client: int) -> bool:
        """Record that a client is available; return whether it was not."""
        if self._available[client]:
            return False
        self._available[client] = True
        self.idle += 1
        self._add(client)
        return True

    def _add(self, client: int) -> None:
        """Put an available client into the pool, unless it has to wait."""
        if self._round is not None and (client in self._had_turn or client in self._resting):
            return
        if self._participation is None or self._participation.allows(client, self._algorithm):
            self.pool.add(client)

    def depart(self, client: int) -> bool:
        """Record that a client is offline; return whether it was available."""
        if not self._available[client]:
            return False
        self._available[client] = False
        self.idle -= 1
        self.pool.discard(client)
        return True

    def available(self) -> list[int]:
        """Return all available clients, whether they may be assigned or not."""
        return [client for client, is_available in enumerate(self._available) if is_available]

    def take(self, client: int) -> int:
        """Take a client out of the pool as if it had been picked, and return it."""
        self.pool.take(client)
        return client

    def put_back(self, client: int) -> None:
        """Let a client be picked again, if it is available."""
        if self._available[client]:
            self._add(client)

    def note_assigned(self, client: int) -> None:
        """Record that a client was assigned.

        It is not available any more, and has had its turn in this round.
        """
        self.idle -= self._available[client]
        self._available[client] = False
        if self._round is not None:
            self._take_turn(client)

    def note_counted(self, update: Update, number: int) -> None:
        """Record that an update has counted, in the sum of this number.

        If its round is still open, this was its client's turn.
        """
        self.pool.counted(update)
        if self._participation is not None:
            self._participation.note(update, number)
        if self._round is not None and self._algorithm.round == self._round:
            self._take_turn(update.client)

    def _take_turn(self, client: int) -> None:
        self._had_turn[client] = None
        self.pool.discard(client)

    def open_round(self) -> bool:
        """Follow the algorithm to its open round; return whether that is a new one."""
        before = self._round
        if before is None or (number := self._algorithm.round) is None or number == before:
            return False
        self._round = number
        clients, self._had_turn = [*self._had_turn], {}
        for opened in range(before + 1, number + 1):
            for client in self._returning.pop(opened, ()):
                del self._resting[client]
                clients.append(client)
        for client in clients:
            returns = self._algorithm.returns_in(client)
            if returns is not None and returns > number:
                self._rest(client, returns)
            else:
                self.put_back(client)
        return True

    def limit(self, client: int, most: int) -> None:
        """Let a client take part in at most so many sums."""
        if self._participation is not None:
            self._participation.lower(client, most)
            if not self._participation.allows(client, self._algorithm):
                self.pool.discard(client)

    def note_failure(self, clients: Sequence[int], number: int) -> None:
        """Record that the sum of this number, with these clients, could not be opened."""
        if self._participation is not None:
            self._participation.note_failure(clients, number)

    def note_numbers(self, clients: Iterable[int]) -> None:
        """Record the numbers of sums again, after one was released or refused.

        The other ``clients`` of a refused sum are in the one that is being filled now, or in a sealed one.
        """
        if self._participation is not None:
            for client in (*clients, *self._algorithm.buffer.held_back()):
                self._participation.move(client, self._algorithm.released + 1)
            for number, closed in enumerate(self._algorithm.sealed, start=self._algorithm.opened + 1):
                for entry in closed.entries:
                    self._participation.move(entry.update.client, number)

    def open_sum(self) -> None:
        """Let clients come again that rested for the limits on their participation."""
        if self._participation is not None:
            for client in self._participation.returning(self._algorithm):
                self.put_back(client)

    def _rest(self, client: int, number: int) -> None:
        self._resting[client] = number
        self._returning.setdefault(number, []).append(client)

    def state_dict(self) -> dict[str, Any]:
        """Return the pool, the available clients, and the clients without a turn.

        The number of the round is in the algorithm's state.
        """
        return {
            **prefixed("pool", self.pool.state_dict()),
            "present": torch.frombuffer(bytearray(self._available), dtype=torch.uint8).nonzero().view(-1),
            "had_turn": torch.tensor(list(self._had_turn), dtype=torch.int64),
            "resting": torch.tensor(list(self._resting.items()), dtype=torch.int64).reshape(-1, 2),
            **prefixed("participation", self._participation.state_dict() if self._participation else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, after the algorithm has."""
        self.pool.load_state_dict(under("pool", state))
        if self._participation is not None:
            self._participation.load_state_dict(under("participation", state))
        self._available = bytearray(len(self._available))
        for client in state["present"].tolist():
            self._available[client] = True
        self.idle = sum(self._available)
        self._round = self._algorithm.round
        self._had_turn = dict.fromkeys(state["had_turn"].tolist())
        self._resting, self._returning = {}, {}
        for client, number in state["resting"].tolist():
            self._rest(client, number)
