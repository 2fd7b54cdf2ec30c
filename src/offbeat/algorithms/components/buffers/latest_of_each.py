"""The averages of what every client sent last, also of clients that are offline."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Entry, Weight, check_finite
from offbeat.algorithms.components.buffers.running_sum import RunningSum
from offbeat.algorithms.components.buffers.single_updates import stacked
from offbeat.algorithms.components.client_update import Update, Vector, resolve
from offbeat.algorithms.components.component import Component, RunFacts, restored, saved

_FORGOTTEN = "it has lost its memory; with server_keeps_updates the server could help it out"


class LatestOfEach(Aggregate):
    """u = Σ weight_i · u_i over the latest updates u_i of all N clients.

    u_i is 0 for a client that never counted. Clients send the difference of an update to their last counted one, so u
    needs one vector: ``u ← u + Σ weight_i (u_i − previous u_i)``. A client that has lost its last update sends the
    whole new one; it counts only if ``kept_by_server``. A client's weight must always be the same.

    Args:
        kept_by_server: Whether the server keeps every client's latest update, N vectors.
    """

    payload = "difference"

    def __init__(self, *, kept_by_server: bool = False) -> None:
        self.kept_by_server = kept_by_server
        self.linear = not kept_by_server

    def _empty(self) -> None:
        self._average: Tensor | None = None
        self._heard: dict[int, int] = {}  # R_i, the version of each client's last counted update
        self._kept: dict[int, Vector] = {}  # the clients' latest updates
        self._open()

    def _open(self) -> None:
        self._count = 0
        self._changes = RunningSum(self._run)
        self._new: list[_Sum] = []  # the latest updates of clients that counted since the last release

    def add(self, update: Update, weight: float | Weight) -> None:
        """Add weight · difference, which must refer to the client's last counted update."""
        assert not isinstance(weight, Weight)
        client, last = update.client, self._heard.get(update.client)
        has_lost_memory = update.since != last
        if not (self.kept_by_server and update.since is None):
            check_since(update, last, "let it send its whole update" if self.kept_by_server else _FORGOTTEN)
        if self.kept_by_server:
            change = _Sum(self._run.length, update.vector)  # needed twice, resolved once
            self._changes.add(change, weight)
            if has_lost_memory:
                self._changes.add(self._kept[client], -weight)
            self._keep(client, change, is_full=update.since is None)
        else:
            self._changes.add(update.vector, weight)
        self._heard[client] = update.version
        self._count += 1

    def _keep(self, client: int, change: "_Sum", *, is_full: bool) -> None:
        latest = change if is_full else _Sum(self._run.length, self._kept[client], change)
        self._kept[client] = latest
        self._new.append(latest)

    def forget(self, client: int, most: int) -> list[float]:
        """Delete what the server keeps of the client; u has its latest update for good."""
        self._kept.pop(client, None)
        return []

    def release(self, version: int) -> ClosedBuffer:
        """Return u with the differences since the last release added to it."""
        changes, new = self._changes, self._new
        closed = ClosedBuffer(version, lambda: self._move(changes, new), count=self._count)
        self._open()
        return closed

    def _move(self, changes: RunningSum, new: "list[_Sum]") -> Tensor:
        total = changes.total()
        for latest in new:
            latest.resolve()  # now, so that sums of sums do not grow without bound
        if self._average is None:
            # In float64, so that rounding errors of many differences do not add up.
            self._average = self._run.zeros(torch.float64)
        check_finite(total, "the sum of the updates")
        self._average += total
        return self._average.float()

    def state_dict(self) -> dict[str, Any]:
        clients = sorted(self._kept)
        average = self._run.zeros(torch.float64) if self._average is None else self._average.clone()
        return {
            "count": self._count,
            "average": average,
            "kept": stacked([resolve(self._kept[client], self._run.length) for client in clients], self._run),
            "kept_of": torch.tensor(clients, dtype=torch.int64),
            **saved("heard", self._heard),
            **self._changes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._empty()
        self._count = state["count"]
        self._average = state["average"].clone()
        self._kept = dict(zip(state["kept_of"].tolist(), state["kept"].clone().unbind(), strict=True))
        self._heard = restored("heard", self._heard, state)
        self._changes.load_state_dict(state)


class _Sum:
    """The promise of a sum of vectors ``(d,)``, each resolved once and then forgotten."""

    def __init__(self, length: int, *parts: Vector) -> None:
        self._length = length
        self._parts = parts

    def resolve(self) -> Tensor:
        first, *others = (resolve(part, self._length) for part in self._parts)
        total = sum(others, start=first)
        self._parts = (total,)
        return total


def check_since(update: Update, last: int | None, advice: str = "it has lost its memory") -> None:
    """Raise ``ValueError`` unless a difference refers to the client's last update."""
    if update.since != last:
        raise ValueError(
            f"client {update.client} sent a difference to {_name(update.since)}, but its last counted one was "
            f"{_name(last)}: {advice}"
        )


def _name(version: int | None) -> str:
    return "nothing" if version is None else f"its update from version {version}"


class LatestModels(Component):
    """x = Σ weight_i · y_i, with y_i the model that client i sent last.

    For a client that has sent none, y_i is w_0. A client's weight must always be the same, and all N sum to 1. The
    memory takes a vector for each client that was heard.
    """

    def start(self, run: RunFacts) -> None:
        self._run = run
        self._initial = self._average = run.zeros()
        self._latest: dict[int, Tensor] = {}

    def begin(self, model: Tensor) -> None:
        """Let every client's model be w_0, ``(d,)``."""
        self._initial = model
        # In float64, so that rounding errors of many differences do not add up.
        self._average = model.to(torch.float64)

    def forget(self, client: int, most: int) -> list[float]:
        """Delete the model that a client sent last; x has it for good."""
        self._latest.pop(client, None)
        return []

    def replace(self, entries: Sequence[Entry]) -> Tensor:
        """Put clients' models in place of their last ones; return x, float32 ``(d,)``.

        Raises:
            NotFiniteError: x would not be finite; nothing has changed.
        """
        average, new = self._average.clone(), dict[int, Tensor]()
        for entry in entries:
            client = entry.update.client
            last = new.get(client, self._latest.get(client, self._initial))
            average.add_(entry.vector.to(torch.float64) - last, alpha=entry.weight)
            new[client] = entry.vector
        model = average.float()
        check_finite(model, "the average of the clients' models")
        self._average = average
        self._latest.update(new)
        return model

    def state_dict(self) -> dict[str, Any]:
        clients = sorted(self._latest)
        return {
            "initial": self._initial.clone(),
            "average": self._average.clone(),
            "latest": stacked([self._latest[client] for client in clients], self._run),
            "latest_of": torch.tensor(clients, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._initial, self._average = state["initial"].clone(), state["average"].clone()
        self._latest = dict(zip(state["latest_of"].tolist(), state["latest"].clone().unbind(), strict=True))
