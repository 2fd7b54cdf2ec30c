"""Sums of masked updates, which a helper opens; each stands for a plain buffer."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Entry, Sum, Weight, latest_places
from offbeat.algorithms.components.buffers.by_round import ByRound
from offbeat.algorithms.components.buffers.latest_of_each import LatestOfEach, check_since
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.running_sum import values
from offbeat.algorithms.components.buffers.wrappers import Wrap, Wrapper
from offbeat.algorithms.components.client_update import Update, resolve
from offbeat.algorithms.components.component import RunFacts, restored, saved

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm


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

    def forget(self, client: int, most: int) -> list[float]:
        places = latest_places([entry.update.client for entry in self._entries], client, most)
        taken = [self._entries[place] for place in places]
        self._entries = [entry for place, entry in enumerate(self._entries) if place not in places]
        return [entry.weight for entry in taken]

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


class SecretByRound(SecretSum):
    """The masked updates that are due, as one sum.

    An update is due once its round has come. If fewer than ``least`` are due, there is no sum, and they
    count in a later round, like updates that came late. A client has one update in the buffer at most.
    """

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._rounds: dict[int, int] = {}  # by client
        self._number = 0  # of the last round that has ended

    @property
    def count(self) -> int:
        """The number of updates that are due."""
        return sum(map(self._is_due, self.held_back()))

    def _is_due(self, client: int) -> bool:
        return self._rounds[client] <= self._number

    def advance(self, number: int | None) -> None:
        assert number is not None
        self._number = number

    def held_back(self) -> Sequence[int]:
        return [entry.update.client for entry in self._entries]

    def add(self, update: Update, weight: float | Weight) -> None:
        """Take in a masked update for a round."""
        assert isinstance(weight, Weight)
        assert weight.round is not None
        super().add(update, weight)
        self._rounds[update.client] = weight.round

    def release(self, version: int) -> ClosedBuffer:
        """Return the sum of the updates that are due."""
        due = [entry for entry in self._entries if self._is_due(entry.update.client)]
        self._entries = [entry for entry in self._entries if not self._is_due(entry.update.client)]
        self._rounds = {client: self._rounds[client] for client in self.held_back()}
        return self._closed(version, due)

    def without(self, closed: ClosedBuffer, client: int) -> ClosedBuffer | None:
        left = super().without(closed, client)
        if left is None:  # what is in the buffer again is due
            self._rounds = {one: self._rounds.get(one, self._number) for one in self.held_back()}
        return left

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "number": self._number, **saved("rounds", self._rounds)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._number = state["number"]
        self._rounds = restored("rounds", self._rounds, state)


_KINDS: dict[type[Aggregate], type[SecretSum]] = {LatestOfEach: SecretLatestOfEach, ByRound: SecretByRound}


def secret(*, step: float, bound: int, least: int) -> Wrap:
    """Return a function that replaces a buffer by one of masked updates.

    The arguments are those of ``SecretSum``.
    """

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        buffer = check_private_sum(algorithm, is_masked=True)
        kind = next((kind for own, kind in _KINDS.items() if isinstance(buffer, own)), SecretSum)
        averages_all_clients = algorithm.averages_all_clients
        return kind(buffer, step=step, bound=bound, least=least, averages_all_clients=averages_all_clients)

    return wrap
