"""A table of every client's mean update, in rounds of one step for each client."""

import math
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.single_updates import stacked
from offbeat.algorithms.components.client_update import Update, Vector, resolve


class ClientMeans(Aggregate):
    """Σ weight_i · (mean of client i's updates in this round), over all N clients.

    A round collects updates until the table has at least one of every client. The arrival that completes it may close
    the buffer, and so may the next arrival of each other client, which joins the table first. All other arrivals of
    that time count in the next round, which begins after N releases. A client's weight must always be the same.
    """

    linear = False
    releases = math.inf  # an update is in all N releases of its round

    @property
    def count(self) -> int:
        """The number of updates added since the last release; 0 unless a release is due."""
        return self._count if self._is_due else 0

    def _empty(self) -> None:
        super()._empty()
        self._is_due = False
        self._round = 0
        self._present: set[int] = set()  # clients in this round's table
        self._early: set[int] = set()  # clients in the next round's table
        self._awaited: set[int] = set()  # clients that still have a release in this round; empty while it collects
        self._arrived: list[tuple[int, int, Vector, float]] = []  # round, client, vector, weight: in no table yet
        self._tables: dict[int, dict[int, _Mean]] = {}

    def add(self, update: Update, weight: float | Weight) -> None:
        assert not isinstance(weight, Weight)
        client, vector = update.client, update.vector
        vector = resolve(vector, self._run.length) if isinstance(vector, Tensor) else vector
        is_early = bool(self._awaited) and client not in self._awaited
        self._arrived.append((self._round + is_early, client, vector, weight))
        self._count += 1
        (self._early if is_early else self._present).add(client)
        if client in self._awaited:
            self._awaited.remove(client)
            self._is_due = True
        elif not is_early and len(self._present) == self._run.clients:
            self._awaited = self._present - {client}
            self._is_due = True

    def release(self, version: int) -> ClosedBuffer:
        """Return the weighted sum of all means; the table stays until the round ends."""
        arrived, number, is_last = self._arrived, self._round, not self._awaited
        closed = ClosedBuffer(version, lambda: self._total(arrived, number, is_last=is_last), count=self._count)
        self._arrived, self._count, self._is_due = [], 0, False
        if is_last:
            self._round += 1
            self._present, self._early = self._early, set()
        return closed

    def _total(self, arrived: list[tuple[int, int, Vector, float]], number: int, *, is_last: bool) -> Tensor:
        self._take_in(arrived)
        total = self._run.zeros()
        for _, mean in sorted(self._tables[number].items()):  # in an order that a restart keeps
            total.add_(mean.sum, alpha=mean.weight / mean.count)
        if is_last:
            del self._tables[number]
        return total

    def _take_in(self, arrived: list[tuple[int, int, Vector, float]]) -> None:
        while arrived:
            number, client, vector, weight = arrived[0]
            vector = resolve(vector, self._run.length)
            table = self._tables.setdefault(number, {})
            if client not in table:
                table[client] = _Mean(self._run.zeros(), 0, weight)
            table[client].sum.add_(vector)
            table[client].count += 1
            del arrived[0]

    def state_dict(self) -> dict[str, Any]:
        self._take_in(self._arrived)
        rows = [
            (number, client, mean) for number, table in sorted(self._tables.items()) for client, mean in table.items()
        ]
        return {
            "round": self._round,
            "count": self._count,
            "awaited": torch.tensor(sorted(self._awaited), dtype=torch.int64),
            "rounds": torch.tensor([number for number, _, _ in rows], dtype=torch.int64),
            "clients": torch.tensor([client for _, client, _ in rows], dtype=torch.int64),
            "counts": torch.tensor([mean.count for _, _, mean in rows], dtype=torch.int64),
            "weights": torch.tensor([mean.weight for _, _, mean in rows], dtype=torch.float64),
            "sums": stacked([mean.sum for _, _, mean in rows], self._run),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._empty()
        self._round, self._count = state["round"], state["count"]
        self._awaited = set(state["awaited"].tolist())
        columns = [state[name].tolist() for name in ("rounds", "clients", "counts", "weights")]
        for number, client, count, weight, total in zip(*columns, state["sums"].clone(), strict=True):
            self._tables.setdefault(number, {})[client] = _Mean(total, count, weight)
        self._present = set(self._tables.get(self._round, ()))
        self._early = set(self._tables.get(self._round + 1, ()))


class _Mean:
    """The sum ``(d,)`` of a client's updates in a round, and their number."""

    __slots__ = ("count", "sum", "weight")

    def __init__(self, total: Tensor, count: int, weight: float) -> None:
        self.sum = total
        self.count = count
        self.weight = weight
