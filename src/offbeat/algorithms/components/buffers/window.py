"""A sliding window of the latest K updates."""

import math
from collections import deque
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.single_updates import stacked
from offbeat.algorithms.components.client_update import Update, Vector, resolve
from offbeat.algorithms.components.component import RunFacts, prefixed, under


class Window(Aggregate):
    """Σ weight · vector over the last K updates.

    Tallies are summed over the window, too.

    Args:
        size: K.
        every: Least number of updates between two releases, 1 ≤ every ≤ K.
        tallies: Names of numbers that are summed beside the vectors.
    """

    def __init__(self, size: int, every: int = 1, *tallies: str) -> None:
        self.size = size
        self.tallies = tallies
        self.releases = -(-size // every)

    def _empty(self) -> None:
        super()._empty()
        self._sum = WindowSum(self._run)
        self._arrived: list[tuple[Vector, float]] = []  # since the last release, and not yet in the sum
        self._numbers = {name: deque[float](maxlen=self.size) for name in self.tallies}

    def add(self, update: Update, weight: float | Weight) -> None:
        """Take in an update as the newest."""
        factor = weight.value if isinstance(weight, Weight) else weight
        vector = update.vector
        self._arrived.append((resolve(vector, self._run.length) if isinstance(vector, Tensor) else vector, factor))
        self._count += 1
        if isinstance(weight, Weight):
            for name, number in weight.tallies.items():
                self._numbers[name].append(number)

    def release(self, version: int) -> ClosedBuffer:
        """Return the sum over the window as it is now; the window stays."""
        arrived, self._arrived = self._arrived, []
        tallies = {name: math.fsum(numbers) for name, numbers in self._numbers.items()}
        closed = ClosedBuffer(version, lambda: self._slide(arrived), count=self._count, tallies=tallies)
        self._count = 0
        return closed

    def _slide(self, arrived: list[tuple[Vector, float]]) -> Tensor:
        """Move the new updates into the sum and the oldest out; return a new tensor."""
        while arrived:
            if len(self._sum) == self.size:
                self._sum.remove()
            self._sum.add(*arrived[0])
            del arrived[0]
        return self._sum.total()

    def state_dict(self) -> dict[str, Any]:
        self._slide(self._arrived)
        numbers = {name: torch.tensor(list(values), dtype=torch.float64) for name, values in self._numbers.items()}
        return {"count": self._count, **self._sum.state_dict(), **prefixed("tallies", numbers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._arrived = []
        self._count = state["count"]
        self._sum.load_state_dict(state)
        for name, numbers in under("tallies", state).items():
            self._numbers[name] = deque(numbers.tolist(), maxlen=self.size)


class WindowSum:
    """Σ weight · vector over a sliding window of K vectors ``(d,)``.

    New vectors are added, the oldest is removed. Nothing is subtracted, so a rounding error does not outlive its
    vector.

    Every K removals the window is summed anew, once for each removal to come: Σ_{j ≥ i} weight_j · vector_j for
    i = 1 … K. The total is the sum whose turn it is, plus the sum of the vectors added since. An arrival takes as many
    additions as with one sum from which the oldest is subtracted, and as much memory: K + 1 vectors.
    """

    def __init__(self, run: RunFacts) -> None:
        self._run = run
        self._older: list[Tensor] = []  # the last sums all older vectors, the last but one lacks the oldest, …
        self._newer: deque[tuple[Tensor, float]] = deque()
        self._newer_sum = run.zeros()

    def __len__(self) -> int:
        return len(self._older) + len(self._newer)

    def add(self, vector: Vector, weight: float) -> None:
        """Take in weight · vector as the newest; a promise is resolved first."""
        vector = resolve(vector, self._run.length)
        self._newer.append((vector, weight))
        self._newer_sum.add_(vector, alpha=weight)

    def remove(self) -> None:
        """Take out the oldest; an ``IndexError`` if there is none."""
        if not self._older:
            self._sum_anew()
        self._older.pop()

    def _sum_anew(self) -> None:
        total = self._run.zeros()
        while self._newer:
            vector, weight = self._newer.pop()
            total = total.add(vector, alpha=weight)
            self._older.append(total)
        self._newer_sum = self._run.zeros()

    def total(self) -> Tensor:
        """Return the sum ``(d,)``, a new tensor."""
        return self._older[-1] + self._newer_sum if self._older else self._newer_sum.clone()

    def state_dict(self) -> dict[str, Any]:
        """Return the older vectors' sums, and the newer vectors with their weights."""
        return {
            "older": stacked(self._older, self._run),
            "newer": stacked([vector for vector, _ in self._newer], self._run),
            "weights": torch.tensor([weight for _, weight in self._newer], dtype=torch.float64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._older = list(state["older"].clone())
        self._newer.clear()
        self._newer_sum = self._run.zeros()
        for vector, weight in zip(state["newer"].clone(), state["weights"].tolist(), strict=True):
            self.add(vector, weight)
