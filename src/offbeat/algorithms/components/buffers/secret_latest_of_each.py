"""The average of every client's latest update, from masked differences."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import ClosedBuffer, Entry, Weight
from offbeat.algorithms.components.buffers.latest_of_each import check_since
from offbeat.algorithms.components.buffers.secret_sum import SecretSum
from offbeat.algorithms.components.component import RunFacts
from offbeat.algorithms.components.state import restored, saved
from offbeat.algorithms.components.update import Update

_NOTHING = -1


class SecretLatestOfEach(SecretSum):
    """u = step · (1/N) Σ q_i over the latest whole numbers q_i of all N clients.

    A client sends the difference of its q_i to that of its last counted update, behind a mask. The server adds whole
    numbers, so u is the average of the q_i exactly, after any number of sums.

    The updates of a sum count once it is opened. If it cannot be opened, its clients' next differences refer to their
    updates before it.
    """

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._total = run.zeros(torch.int64)  # Σ q_i
        self._heard: dict[int, int] = {}  # the version of each client's last update in an opened sum

    def add(self, update: Update, weight: float | Weight) -> None:
        """Take in a masked difference.

        It must refer to the client's last update in an opened sum.
        """
        check_since(update, self._heard.get(update.client))
        super().add(update, weight)

    def reveal(self, closed: ClosedBuffer, opened: Tensor) -> ClosedBuffer:
        """Return u with an opened sum of differences added to it."""
        self.check_opened(opened)
        for entry in closed.entries:
            self._heard[entry.update.client] = entry.update.version
        return self._revealed(closed, lambda: self._move(opened))

    def _move(self, opened: Tensor) -> Tensor:
        self._total += opened
        return self._total

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "total": self._total.clone(), **saved("heard", self._heard)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._total = state["total"].clone()
        self._heard = restored("heard", self._heard, state)

    def _state_of(self, entries: Sequence[Entry]) -> dict[str, Any]:
        since = [_NOTHING if entry.update.since is None else entry.update.since for entry in entries]
        return {**super()._state_of(entries), "since": torch.tensor(since, dtype=torch.int64)}

    def _entries_from(self, state: dict[str, Any]) -> list[Entry]:
        entries = super()._entries_from(state)
        for entry, since in zip(entries, state["since"].tolist(), strict=True):
            entry.update = entry.update._replace(since=None if since == _NOTHING else since)
        return entries
