"""A limit on a single client's share of a server step."""

import math
from typing import TYPE_CHECKING, Any

import torch

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.single_updates import Each
from offbeat.algorithms.components.buffers.wrappers import Wrap, Wrapper
from offbeat.algorithms.components.client_update import Update
from offbeat.algorithms.components.component import RunFacts, prefixed, restored, saved, under

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm

_MIN_CLIENTS = 3  # one of two clients with different weights always has more than half


class ShareCap(Wrapper):
    """A wrapper that gives one client at most a share s of a step's weight.

    It caps steps of three or more clients whose weights are not 0. The updates of the heaviest client so far are held
    back. At the release their weight is lowered, if it is more, to ``s / (1 − s)`` times the weight of all other
    clients. Updates that a client passed on before it became the heaviest need no limit: they weigh less than the
    client that was the heaviest then. Weight is the tally ``examples`` where there is one; s is ``max_share``,
    ½ ≤ s < 1.
    """

    def __init__(self, inner: Aggregate, max_share: float) -> None:
        super().__init__(inner)
        self.max_share = max_share
        self._held = Each()

    @property
    def count(self) -> int:
        return self.inner.count + self._held.count

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._held.start(run)
        self._begin()

    def _begin(self) -> None:
        self._weights: dict[int, float] = {}  # of each client's updates since the last release
        self._heaviest: int | None = None
        self._tallies: dict[str, list[float]] = {}  # of the updates held back

    def add(self, update: Update, weight: float | Weight) -> None:
        """Hold the update back if its client is the heaviest now, else pass it on."""
        client, full_weight = update.client, weight if isinstance(weight, Weight) else Weight(weight)
        total = self._weights.get(client, 0.0) + full_weight.tallies.get("examples", full_weight.value)
        if self._heaviest is not None and client != self._heaviest:
            if total <= self._weights[self._heaviest]:
                self.inner.add(update, weight)
                self._weights[client] = total
                return
            self._pass_on()
        self._held.add(update, full_weight)
        for name, number in full_weight.tallies.items():
            self._tallies.setdefault(name, []).append(number)
        self._heaviest = client
        self._weights[client] = total

    def _pass_on(self, most: float = math.inf) -> None:
        """Pass the held updates on, so that their client weighs at most ``most`` in all."""
        tallies, self._tallies = self._tallies, {}
        entries = self._held.release(0).entries
        held = sum(tallies.get("examples", [entry.weight for entry in entries]))
        for number, entry in enumerate(entries):
            left = max(0.0, most - (self._weights[entry.update.client] - held))
            factor = min(1.0, left / held) if held else 1.0  # weights that depend on the staleness may be 0
            lowered: dict[str, Any] = {name: numbers[number] * factor for name, numbers in tallies.items()}
            self.inner.add(entry.update, Weight(entry.weight * factor, **lowered))

    def forget(self, client: int, most: int) -> list[float]:
        held = list(zip(*self._tallies.values(), strict=True)) if self._tallies else []
        taken = self._held.forget(client, most) if client == self._heaviest else []
        if taken:
            names = list(self._tallies)
            # All of them are the heaviest client's, so those that were taken out are the last ones.
            rest = held[: self._held.count]
            self._tallies = {name: [row[column] for row in rest] for column, name in enumerate(names)}
            if "examples" in names:
                taken = [row[names.index("examples")] for row in held[self._held.count :]]
        taken += self.inner.forget(client, most - len(taken))
        if taken and client in self._weights:
            self._lower(client, sum(taken))
        return taken

    def _lower(self, client: int, weight: float) -> None:
        """Lower a client's weight; another one may be the heaviest then.

        Of that one, updates that were passed on keep their weight.
        """
        left = self._weights[client] - weight
        self._weights[client] = 0.0 if math.isclose(left, 0.0, abs_tol=1e-9 * weight) else left
        if client == self._heaviest:
            heaviest = max(self._weights, key=self._weights.__getitem__)
            if heaviest != client:
                self._pass_on()
                self._heaviest = heaviest

    def release(self, version: int) -> ClosedBuffer:
        clients = sum(weight > 0 for weight in self._weights.values())
        if clients < _MIN_CLIENTS or self._heaviest is None:
            self._pass_on()
        else:
            others = sum(self._weights.values()) - self._weights[self._heaviest]
            self._pass_on(others * self.max_share / (1 - self.max_share))
        self._begin()
        return self.inner.release(version)

    def state_dict(self) -> dict[str, Any]:
        tallies = {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in self._tallies.items()}
        return {
            **prefixed("inner", self.inner.state_dict()),
            **prefixed("held", self._held.state_dict()),
            **prefixed("tallies", tallies),
            **saved("weights", self._weights),
            "heaviest": self._heaviest,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(under("inner", state))
        self._held.load_state_dict(under("held", state))
        self._tallies = {name: numbers.tolist() for name, numbers in under("tallies", state).items()}
        self._weights = restored("weights", self._weights, state)
        self._heaviest = state["heaviest"]


def cap_share(max_share: float) -> Wrap:
    """Return a function that wraps a buffer in ``ShareCap``.

    It raises ``ValueError`` if the algorithm has no buffer.
    """

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        if not hasattr(algorithm, "buffer"):  # it implements the whole contract by itself
            raise ValueError(f"max_share does not go with {algorithm.name}, which has no buffer: set max_share = 1")
        return ShareCap(algorithm.buffer, max_share)

    return wrap
