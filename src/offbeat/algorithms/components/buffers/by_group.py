"""Single updates, by the group of clients in which they count."""

from typing import Any

import torch

from offbeat.algorithms.components.buffers.aggregate import ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.single_updates import Each, total_of
from offbeat.algorithms.components.schedules.arrival_groups import ArrivalGroups
from offbeat.algorithms.components.update import Update

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
