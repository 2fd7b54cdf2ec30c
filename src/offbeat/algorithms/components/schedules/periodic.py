"""Periods: the buffer closes with the clock; clients return in their own rounds."""

from typing import Any

from offbeat.algorithms.components.component import RunFacts, prefixed, restored, saved, under
from offbeat.algorithms.components.schedules.patterns import Pattern
from offbeat.algorithms.components.schedules.schedule import Schedule


class Periodic(Schedule):
    """A tick every ``period`` seconds ends a round and closes the buffer.

    All clients work, except those that are back before the round in which their update counts: the next one, or by
    a ``pattern`` the first later round in which the client talks. An update that comes after its round counts in the
    next.

    Args:
        period: Seconds a round.
        pattern: The rounds in which clients talk; None if every client talks as soon as it is back.
    """

    def __init__(self, period: float, pattern: Pattern | None = None) -> None:
        self.period = period
        self.pattern = pattern

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._number = 0
        self._due: dict[int, int] = {}  # the round in which each client that is at work talks
        self._resting: dict[int, int] = {}  # the round in which each waiting client's update counts
        self._returning: dict[int, list[int]] = {}  # the same, by round
        self._talk = (-1, -1, -1)  # the last answer of talks_in: client, round, result

    @property
    def number(self) -> int:
        return self._number

    def slots(self) -> int:
        """Return how many clients are neither at work nor back before their round."""
        return self.clients - self.at_work - len(self._resting)

    def returns_in(self, client: int) -> int:
        return self._resting.get(client, self.number)

    def talks_in(self, client: int) -> int:
        """Return the round in which the client talks if it begins now."""
        if self.pattern is None:
            return self.number + 1
        if self._talk[:2] != (client, self.number):  # asked for the plan, then by assign
            self._talk = client, self.number, self.pattern.next_round(client, self.number, self.clients)
        return self._talk[2]

    def counts_in(self, client: int) -> int:
        """Return the round in which the client's update counts if it comes now."""
        return max(self._due[client], self._number + 1)

    def assign(self, client: int, version: int) -> None:
        if client in self._resting:
            counts = self._resting[client]
            raise ValueError(f"client {client} cannot be assigned before round {counts}, in which its update counts")
        self._due[client] = self.talks_in(client)
        super().assign(client, version)

    def hear(self, client: int) -> bool:
        """Let the client rest until the round in which its update counts."""
        self._rest(client, self.counts_in(client))
        del self._due[client]
        super().hear(client)
        return False

    def _rest(self, client: int, number: int) -> None:
        self._resting[client] = number
        self._returning.setdefault(number, []).append(client)

    def lose(self, client: int, version: int) -> bool:
        super().lose(client, version)
        return False

    def tick(self) -> bool:
        """Begin the next round; clients whose updates count in it may be assigned again."""
        self._number += 1
        for client in self._returning.pop(self.number, ()):
            del self._resting[client]
        return True

    def state_dict(self) -> dict[str, Any]:
        return {
            "number": self._number,
            **saved("due", self._due),
            **saved("resting", self._resting),
            **prefixed("at_work", super().state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._number = state["number"]
        self._due = restored("due", self._due, state)
        self._resting, self._returning = {}, {}
        for client, number in restored("resting", self._resting, state).items():
            self._rest(client, number)
        super().load_state_dict(under("at_work", state))
