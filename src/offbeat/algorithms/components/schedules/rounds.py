"""Rounds: a set of clients works from one version.

The buffer closes when the round is complete.
"""

import math
from abc import abstractmethod
from typing import Annotated, Any

import torch
from annotated_types import Interval

from offbeat.algorithms.components.component import RunFacts, prefixed, under
from offbeat.algorithms.components.schedules.schedule import Schedule

OverSelection = Annotated[float, Interval(ge=1, le=1000)]
"""r: ``ceil(m · r)`` clients are assigned in a round that waits for m updates."""


class RoundSchedule(Schedule):
    """Rounds of any kind.

    A lost client is not replaced, but its update counts while its round is open.
    """

    wants_all = False
    has_rounds = True

    def start(self, run: RunFacts) -> None:
        self._number = -1
        self._run = run
        self.open()

    @property
    def number(self) -> int:
        return self._number

    def open(self) -> None:
        super().start(self._run)
        self._number += 1
        self._assigned: set[int] = set()
        self._heard = 0
        self._is_closed = False

    def close(self) -> None:
        """End the round: no update of it is expected any more."""
        super().start(self._run)
        self._is_closed = True

    @abstractmethod
    def places(self) -> int:
        """Return how many clients the round has room for now."""

    def slots(self) -> int:
        return 0 if self._is_closed else self.places() - len(self._assigned)

    def assign(self, client: int, version: int) -> None:
        if self.slots() < 1 or client in self._assigned:
            raise ValueError(f"client {client} cannot be assigned: it had its turn in this round, or none is wanted")
        self._assigned.add(client)
        super().assign(client, version)

    def hear(self, client: int) -> bool:
        """Record that the client's update came; return whether the round is complete."""
        super().hear(client)
        self._heard += 1
        return self.is_complete()

    def lose(self, client: int, version: int) -> bool:
        """Wait no longer for the client; return whether that completes the round."""
        return super().lose(client, version) and self.is_complete()

    def is_complete(self) -> bool:
        """Return whether the round is full and every client in it was heard or lost."""
        return self.at_work == 0 and self.slots() == 0

    def tick(self) -> bool:
        """Return whether the round has begun, and so ends with the updates that are in."""
        return bool(self._assigned) and not self._is_closed

    def state_dict(self) -> dict[str, Any]:
        return {
            "number": self._number,
            "heard": self._heard,
            "is_closed": self._is_closed,
            "asked": torch.tensor(sorted(self._assigned), dtype=torch.int64),
            **prefixed("at_work", super().state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._number = state["number"]
        self._heard = state["heard"]
        self._is_closed = state["is_closed"]
        self._assigned = set(state["asked"].tolist())
        super().load_state_dict(under("at_work", state))


class Rounds(RoundSchedule):
    """Rounds of ``ceil(m · r)`` clients that wait for the first m updates.

    A round is complete when m clients were heard, or when all its clients were heard or lost.

    Args:
        cohort: m, 1 ≤ m ≤ N.
        over_selection: r ≥ 1.
    """

    def __init__(self, cohort: int, over_selection: float = 1.0) -> None:
        self.cohort = cohort
        self.over_selection = over_selection

    def check_run(self, run: RunFacts) -> None:
        if self.cohort > run.clients:
            raise ValueError(f"cohort must be at most the number of clients, {run.clients}, got {self.cohort}")

    def start(self, run: RunFacts) -> None:
        # Rounding first keeps 100 · 1.1 = 110.00000000000001 from assigning one client too many.
        self._places = min(math.ceil(round(self.cohort * self.over_selection, 9)), run.clients)
        super().start(run)

    def places(self) -> int:
        return self._places

    def is_complete(self) -> bool:
        """Return whether m clients were heard, or all were heard or lost."""
        return self._heard == self.cohort or super().is_complete()


class Available(RoundSchedule):
    """Rounds of all clients that are available until the first of them is back.

    A round is complete when all its clients were heard or lost, so it does not wait for clients that were offline.
    """

    def places(self) -> int:
        """Return N until the first client is back, then the number of clients assigned."""
        return len(self._assigned) if self._heard else self.clients

    def is_complete(self) -> bool:
        return self.at_work == 0
