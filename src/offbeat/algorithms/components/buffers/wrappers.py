"""Wrappers around a buffer, chosen by the run, that clip or refuse updates."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.client_update import Update, UpdateRefusedError, Vector, resolve
from offbeat.algorithms.components.component import RunFacts

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm

Wrap = Callable[["Algorithm[Any]"], Aggregate]
"""Makes a wrapper around an algorithm's buffer; a ``ValueError`` if the two do not go together."""


class Wrapper(Aggregate):
    """A buffer around another one, which changes or refuses updates on their way in."""

    def __init__(self, inner: Aggregate) -> None:
        self.inner = inner
        self.linear = inner.linear
        self.releases = inner.releases
        self.least = inner.least

    @property
    def count(self) -> int:
        return self.inner.count

    def check_run(self, run: RunFacts) -> None:
        self.inner.check_run(run)

    def start(self, run: RunFacts) -> None:
        self._run = run
        self.inner.start(run)

    def advance(self, number: int | None) -> None:
        self.inner.advance(number)

    def held_back(self) -> Sequence[int]:
        return self.inner.held_back()

    def add(self, update: Update, weight: float | Weight) -> None:
        self.inner.add(update, weight)

    def forget(self, client: int, most: int) -> list[float]:
        return self.inner.forget(client, most)

    def release(self, version: int) -> ClosedBuffer:
        return self.inner.release(version)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


class Clip(Wrapper):
    """A wrapper that scales long updates down: ``Δ ← Δ · min(1, C / ‖Δ‖)``.

    An update longer than the Euclidean norm C = ``max_norm`` gets the norm C.
    """

    def __init__(self, inner: Aggregate, max_norm: float) -> None:
        super().__init__(inner)
        self.max_norm = max_norm

    def add(self, update: Update, weight: float | Weight) -> None:
        """Pass a clipped update on; a promise is clipped when it is resolved."""
        self.inner.add(clipped(update, self.max_norm, self._run.length), weight)


class Limit(Wrapper):
    """A wrapper that refuses updates whose norm is too large.

    It looks at each update on arrival, so it resolves promises at once.
    """

    def __init__(self, inner: Aggregate, max_norm: float) -> None:
        super().__init__(inner)
        self.max_norm = max_norm

    def add(self, update: Update, weight: float | Weight) -> None:
        """Pass an update on; an ``UpdateRefusedError`` if it is too long."""
        norm = _norm(resolve(update.vector, self._run.length))
        if not norm <= self.max_norm:
            raise UpdateRefusedError(f"the update's norm is {norm:.6g}, allowed is at most {self.max_norm:.6g}")
        self.inner.add(update, weight)


def clip(max_norm: float) -> Wrap:
    """Return a function that wraps a buffer of deltas in ``Clip``."""

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        if algorithm.payload == "difference" or algorithm.corrects_gradients:
            raise ValueError(
                f"update_clip_norm does not go with {algorithm.name}: its clients would remember what was cut off"
            )
        _check_travels(algorithm, "update_clip_norm")
        return Clip(algorithm.buffer, max_norm)

    return wrap


def limit(max_norm: float) -> Wrap:
    """Return a function that wraps a buffer of deltas or differences in ``Limit``."""

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        _check_travels(algorithm, "max_update_norm")
        return Limit(algorithm.buffer, max_norm)

    return wrap


def clipped(update: Update, max_norm: float, length: int) -> Update:
    """Return an update whose vector, or the promise of one, has at most this norm."""
    promise = _Clipped(update.vector, max_norm, length)
    return update._replace(vector=promise.resolve() if isinstance(update.vector, Tensor) else promise)


def _check_travels(algorithm: "Algorithm[Any]", key: str) -> None:
    if algorithm.payload == "params":
        raise ValueError(f"{key} does not go with {algorithm.name}: its clients upload whole models, not updates")


class _Clipped:
    """The promise of a clipped vector."""

    def __init__(self, vector: Vector, max_norm: float, length: int) -> None:
        self._vector = vector
        self._max_norm = max_norm
        self._length = length

    def resolve(self) -> Tensor:
        vector = resolve(self._vector, self._length)
        norm = _norm(vector)
        return vector if norm <= self._max_norm else vector * (self._max_norm / norm)


def _norm(vector: Tensor) -> float:
    # In float64, since the squares of a long vector overflow.
    return torch.linalg.vector_norm(vector, dtype=torch.float64).item()
