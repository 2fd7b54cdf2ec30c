"""Sums of masked updates, which a helper opens."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Entry, Sum, Weight
from offbeat.algorithms.components.buffers.whole_sums import values
from offbeat.algorithms.components.buffers.wrappers import Wrapper
from offbeat.algorithms.components.component import RunFacts
from offbeat.algorithms.components.update import Update, resolve

_COLUMNS = {"client": torch.int64, "version": torch.int64}


class SecretSum(Wrapper):
    """A sum of whole numbers, each vector behind a mask.

    Clients divide, clip, scale and round their updates, and add masks modulo 2³². The server adds the masked vectors
    up, and a helper that knows the masks opens the sum. Weights are in the vectors already; here they are only counted.

    Args:
        inner: The buffer that it stands for.
        step: The value of the whole number 1.
        bound: The largest absolute value of a true sum's entries. A sum beyond it was opened with a wrong mask.
        least: The fewest updates in a sum.
        averages_all_clients: Whether each weight is a client's share of all N, 1/N, which is not in the vectors.
    """

    def __init__(
        self, inner: Aggregate, *, step: float, bound: int, least: int, averages_all_clients: bool = False
    ) -> None:
        super().__init__(inner)
        self.step = step
        self.bound = bound
        self.least = least
        self._averages_all_clients = averages_all_clients
        self._tallies = inner.tallies if isinstance(inner, Sum) else ()

    @property
    def count(self) -> int:
        return len(self._entries)

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._entries: list[Entry] = []
        self._value = self.step / run.clients if self._averages_all_clients else self.step

    def add(self, update: Update, weight: float | Weight) -> None:
        """Take in a masked update; a ``ValueError`` if it has no share."""
        if update.share is None:
            raise ValueError("this run takes masked updates only: send a share")
        weight = weight if isinstance(weight, Weight) else Weight(weight)
        self._entries.append(Entry(update, weight.value, self._run.length, weight.tallies))

    def release(self, version: int) -> ClosedBuffer:
        closed = self._closed(version, self._entries)
        self._entries = []
        return closed

    def _closed(self, version: int, entries: Sequence[Entry]) -> ClosedBuffer:
        tallies = {name: sum(entry.tallies[name] for entry in entries) for name in self._tallies}
        total = sum(entry.weight for entry in entries)
        numbers: dict[str, Any] = {"count": len(entries), "weight": total, "tallies": tallies}
        numbers["oldest"] = min((entry.update.version for entry in entries), default=None)
        return ClosedBuffer(version, _not_revealed, **numbers, entries=entries, sealed=True)

    def masked_sum(self, closed: ClosedBuffer) -> Tensor:
        """Return the sum of a sealed sum's masked vectors, int32 ``(d,)``, modulo 2³²."""
        total = self._run.zeros(torch.int32)
        for entry in closed.entries:
            total += resolve(entry.update.vector, self._run.length, torch.int32)
        return total

    def check_opened(self, opened: Tensor) -> None:
        """Raise ``ValueError`` unless this can be a sum without masks, int32 ``(d,)``.

        An entry beyond the bound means that the masks were wrong.
        """
        resolve(opened, self._run.length, torch.int32)
        least, most = (int(value) for value in torch.aminmax(opened))
        if least < -self.bound or most > self.bound:
            raise ValueError("the opened sum is out of range: a client's mask was wrong")

    def reveal(self, closed: ClosedBuffer, opened: Tensor) -> ClosedBuffer:
        """Return the buffer of a sum without masks; see ``check_opened``."""
        self.check_opened(opened)
        return self._revealed(closed, lambda: opened)

    def _revealed(self, closed: ClosedBuffer, numbers: Callable[[], Tensor]) -> ClosedBuffer:
        """Return the buffer of the whole numbers that ``numbers`` returns."""
        counts: dict[str, Any] = {name: getattr(closed, name) for name in ("count", "weight", "tallies", "oldest")}
        return ClosedBuffer(closed.version, lambda: values(numbers(), self._value), **counts)

    def without(self, closed: ClosedBuffer, client: int) -> ClosedBuffer | None:
        entries = [entry for entry in closed.entries if entry.update.client != client]
        if len(entries) == len(closed.entries):
            raise ValueError(f"client {client} is not in the sealed sum")
        if len(entries) >= self.least:
            return self._closed(closed.version, entries)
        self._entries = [*entries, *self._entries]
        return None

    def sealed_state(self, closed: ClosedBuffer) -> dict[str, Any]:
        return {"sealed_from": closed.version, **self._state_of(closed.entries)}

    def sealed_from(self, state: dict[str, Any]) -> ClosedBuffer:
        return self._closed(state["sealed_from"], self._entries_from(state))

    def state_dict(self) -> dict[str, Any]:
        return self._state_of(self._entries)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._entries = self._entries_from(state)

    def _state_of(self, entries: Sequence[Entry]) -> dict[str, Any]:
        updates = [entry.update for entry in entries]
        vectors = [resolve(update.vector, self._run.length, torch.int32) for update in updates]
        empty = torch.zeros(0, self._run.length, dtype=torch.int32, device=self._run.device)
        return {
            **{name: torch.tensor([getattr(u, name) for u in updates], dtype=kind) for name, kind in _COLUMNS.items()},
            "weights": torch.tensor([entry.weight for entry in entries], dtype=torch.float64),
            "tallies": torch.tensor(
                [[e.tallies[name] for name in self._tallies] for e in entries], dtype=torch.float64
            ),
            "vectors": torch.stack(vectors) if vectors else empty,
            "shares": [(update.share or b"").hex() for update in updates],
        }

    def _entries_from(self, state: dict[str, Any]) -> list[Entry]:
        columns = [state[name].tolist() for name in (*_COLUMNS, "weights", "tallies")]
        return [
            Entry(
                Update(client, version, vector, 1, 0, 0.0, share=bytes.fromhex(share)),
                weight,
                self._run.length,
                dict(zip(self._tallies, tallies, strict=True)),
            )
            for vector, share, client, version, weight, tallies in zip(
                state["vectors"].clone(), state["shares"], *columns, strict=True
            )
        ]


def _not_revealed() -> Tensor:
    raise ValueError("a sealed sum has no total before it is revealed")
