"""A buffer that keeps single updates, for steps that look at each vector."""

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Entry, Weight, latest_places
from offbeat.algorithms.components.client_update import Update, resolve
from offbeat.algorithms.components.component import RunFacts

_COLUMNS = {"client": torch.int64, "version": torch.int64, "examples": torch.int64, "steps": torch.int64}


class Each(Aggregate):
    """The updates since the last release, with their weights.

    Their vectors, bases and counts are saved; a step that reads other metadata of them would differ after a restart.
    """

    linear = False

    def _empty(self) -> None:
        super()._empty()
        self._entries: list[Entry] = []

    def add(self, update: Update, weight: float | Weight) -> None:
        if update.base is not None:
            update = update._replace(base=resolve(update.base, self._run.length))
        self._entries.append(Entry(update, weight.value if isinstance(weight, Weight) else weight, self._run.length))
        self._count += 1

    def forget(self, client: int, most: int) -> list[float]:
        places = latest_places([entry.update.client for entry in self._entries], client, most)
        taken = [self._entries[place] for place in places]
        self._remove(places)
        return [entry.weight for entry in taken]

    def _remove(self, places: Container[int]) -> None:
        self._entries = [entry for place, entry in enumerate(self._entries) if place not in places]
        self._count = len(self._entries)

    def release(self, version: int) -> ClosedBuffer:
        entries = self._entries
        closed = ClosedBuffer(version, lambda: total_of(entries, self._run), count=self._count, entries=entries)
        self._empty()
        return closed

    def state_dict(self) -> dict[str, Any]:
        updates = [entry.update for entry in self._entries]
        bases = [update.base for update in updates if update.base is not None]
        return {
            **{name: torch.tensor([getattr(u, name) for u in updates], dtype=kind) for name, kind in _COLUMNS.items()},
            "normaliser": torch.tensor([update.normaliser for update in updates], dtype=torch.float64),
            "weights": torch.tensor([entry.weight for entry in self._entries], dtype=torch.float64),
            "vectors": stacked([entry.vector for entry in self._entries], self._run),
            "bases": stacked(bases, self._run),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._empty()
        bases = list(state["bases"].clone()) or [None] * len(state["vectors"])
        columns = [state[name].tolist() for name in (*_COLUMNS, "normaliser", "weights")]
        for vector, base, client, version, examples, steps, normaliser, weight in zip(
            state["vectors"].clone(), bases, *columns, strict=True
        ):
            self.add(Update(client, version, vector, examples, steps, normaliser, base), weight)


def stacked(vectors: list[Tensor], run: RunFacts) -> Tensor:
    """Return vectors ``(d,)`` as the rows of one tensor, of no rows if there are none."""
    return torch.stack(vectors) if vectors else torch.zeros(0, run.length, device=run.device)


def total_of(entries: list[Entry], run: RunFacts) -> Tensor:
    """Return Σ weight · vector, ``(d,)``."""
    total = run.zeros()
    for entry in entries:
        total.add_(entry.vector, alpha=entry.weight)
    return total
