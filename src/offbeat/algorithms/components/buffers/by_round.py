"""Sums of updates by the round in which they count."""

from typing import Any

import torch

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.running_sum import RunningSum
from offbeat.algorithms.components.buffers.single_updates import stacked
from offbeat.algorithms.components.update import Update


class ByRound(Aggregate):
    """Σ weight · vector for each round to come.

    The release from version t is the sum of round t + 1.
    """

    def _empty(self) -> None:
        super()._empty()
        self._sums: dict[int, RunningSum] = {}
        self._counts: dict[int, int] = {}

    def add(self, update: Update, weight: float | Weight) -> None:
        assert isinstance(weight, Weight)
        assert weight.round is not None
        number = weight.round
        total = self._sums.get(number) or RunningSum(self._run)
        total.add(update.vector, weight.value)
        self._sums[number] = total
        self._counts[number] = self._counts.get(number, 0) + 1
        self._count += 1

    def release(self, version: int) -> ClosedBuffer:
        """Return the sum of round ``version + 1``, of zeros if no client talked in it."""
        total = self._sums.pop(version + 1, None) or RunningSum(self._run)
        count = self._counts.pop(version + 1, 0)
        self._count -= count
        return ClosedBuffer(version, total.total, count=count)

    def state_dict(self) -> dict[str, Any]:
        rounds = sorted(self._sums)
        return {
            "rounds": torch.tensor(rounds, dtype=torch.int64),
            "counts": torch.tensor([self._counts[number] for number in rounds], dtype=torch.int64),
            "sums": stacked([self._sums[number].total() for number in rounds], self._run),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._empty()
        for number, count, total in zip(state["rounds"].tolist(), state["counts"].tolist(), state["sums"], strict=True):
            self._sums[number] = RunningSum(self._run)
            self._sums[number].load_state_dict({"sum": total})
            self._counts[number] = count
            self._count += count
