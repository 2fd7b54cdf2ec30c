"""Updates by the round, or the group of clients, in which they count."""

from collections.abc import Container
from typing import Any

import torch

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.running_sum import RunningSum
from offbeat.algorithms.components.buffers.single_updates import Each, stacked, total_of
from offbeat.algorithms.components.client_update import Update
from offbeat.algorithms.components.schedules.arrival_groups import ArrivalGroups


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


_NO_GROUP = -1


class ByGroup(Each):
    """The updates of each group; those of no group are in the next release.

    A weight's ``round`` is the group's number; None for no group.

    Args:
        groups: Its ``closing`` is the group to release.
    """

    def __init__(self, groups: ArrivalGroups) -> None:
        self._schedule = groups

    def _empty(self) -> None:
        super()._empty()
        self._groups: list[int] = []

    def add(self, update: Update, weight: float | Weight) -> None:
        super().add(update, weight)
        group = weight.round if isinstance(weight, Weight) else None
        self._groups.append(_NO_GROUP if group is None else group)

    def _remove(self, places: Container[int]) -> None:
        super()._remove(places)
        self._groups = [group for place, group in enumerate(self._groups) if place not in places]

    def release(self, version: int) -> ClosedBuffer:
        pairs = list(zip(self._entries, self._groups, strict=True))
        released = (_NO_GROUP, self._schedule.closing)
        entries = [entry for entry, group in pairs if group in released]
        self._entries = [entry for entry, group in pairs if group not in released]
        self._groups = [group for _, group in pairs if group not in released]
        self._count = len(self._entries)
        return ClosedBuffer(version, lambda: total_of(entries, self._run), count=len(entries), entries=entries)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "groups": torch.tensor(self._groups, dtype=torch.int64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._groups = state["groups"].tolist()
