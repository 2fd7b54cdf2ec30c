"""Sums of masked updates that count in rounds to come."""

from collections.abc import Sequence
from typing import Any

from offbeat.algorithms.components.buffers.aggregate import ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.secret_sum import SecretSum
from offbeat.algorithms.components.component import RunFacts
from offbeat.algorithms.components.state import restored, saved
from offbeat.algorithms.components.update import Update


class SecretByRound(SecretSum):
    """The masked updates that are due, as one sum.

    An update is due from the round on in which it counts. If fewer than ``least`` are due, there is no sum, and they
    count in a later round, like updates that came late. A client has one update in the buffer at most.
    """

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._rounds: dict[int, int] = {}  # by client
        self._number = 0  # of the last round that has ended

    @property
    def count(self) -> int:
        """The number of updates that are due."""
        return sum(map(self._is_due, self.held_back()))

    def _is_due(self, client: int) -> bool:
        return self._rounds[client] <= self._number

    def advance(self, number: int | None) -> None:
        assert number is not None
        self._number = number

    def held_back(self) -> Sequence[int]:
        return [entry.update.client for entry in self._entries]

    def add(self, update: Update, weight: float | Weight) -> None:
        """Take in a masked update for a round."""
        assert isinstance(weight, Weight)
        assert weight.round is not None
        super().add(update, weight)
        self._rounds[update.client] = weight.round

    def release(self, version: int) -> ClosedBuffer:
        """Return the sum of the updates that are due."""
        due = [entry for entry in self._entries if self._is_due(entry.update.client)]
        self._entries = [entry for entry in self._entries if not self._is_due(entry.update.client)]
        self._rounds = {client: self._rounds[client] for client in self.held_back()}
        return self._closed(version, due)

    def without(self, closed: ClosedBuffer, client: int) -> ClosedBuffer | None:
        left = super().without(closed, client)
        if left is None:  # what is in the buffer again is due
            self._rounds = {one: self._rounds.get(one, self._number) for one in self.held_back()}
        return left

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "number": self._number, **saved("rounds", self._rounds)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._number = state["number"]
        self._rounds = restored("rounds", self._rounds, state)
