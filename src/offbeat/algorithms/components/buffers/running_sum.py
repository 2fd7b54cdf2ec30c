"""A weighted sum of vectors in the order of their arrival."""

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.client_update import Vector, resolve
from offbeat.algorithms.components.component import RunFacts


class RunningSum:
    """Σ weight · vector in one vector ``(d,)``.

    A promise waits until the sum is read, and so do all vectors after it: the order of the additions, and with it
    every bit of the sum, is that of the calls. No memory is allocated before the first vector is added.

    Args:
        run: The run.
        dtype: The type of the sum.
        vectors: The type of the vectors.
    """

    def __init__(self, run: RunFacts, dtype: torch.dtype = torch.float32, vectors: torch.dtype = torch.float32) -> None:
        self._run = run
        self._dtype = dtype
        self._vectors = vectors
        self._sum: Tensor | None = None
        self._waiting: list[tuple[Vector, float]] = []

    def add(self, vector: Vector, weight: float) -> None:
        """Add weight · vector; a ``ValueError`` if a tensor has the wrong shape."""
        if isinstance(vector, Tensor):
            vector = resolve(vector, self._run.length, self._vectors)
            if not self._waiting:
                self._vector().add_(vector, alpha=weight)
                return
        self._waiting.append((vector, weight))

    @property
    def waiting(self) -> int:
        """The number of vectors, the last ones, that are not in the sum yet."""
        return len(self._waiting)

    def remove(self, places: Container[int]) -> None:
        """Take out waiting vectors by their places, from 0."""
        self._waiting = [pair for place, pair in enumerate(self._waiting) if place not in places]

    def total(self) -> Tensor:
        """Return the sum ``(d,)``, not a copy."""
        while self._waiting:
            vector, weight = self._waiting[0]
            self._vector().add_(resolve(vector, self._run.length, self._vectors), alpha=weight)
            del self._waiting[0]
        return self._vector()

    def _vector(self) -> Tensor:
        if self._sum is None:
            self._sum = self._run.zeros(self._dtype)
        return self._sum

    def state_dict(self) -> dict[str, Any]:
        """Return the sum; promises are resolved for it."""
        is_empty = self._sum is None and not self._waiting
        return {"sum": self._run.zeros(self._dtype) if is_empty else self.total().clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sum = state["sum"].clone()
        self._waiting = []


_PIECE = 1 << 16  # numbers at a time


def values(numbers: Tensor, value: float) -> Tensor:
    """Return ``value · numbers``, float32 ``(d,)``, through float64.

    The products in float64 are made a piece at a time: all of them would be new memory, which takes longer to get than
    to fill.
    """
    products = torch.empty(len(numbers), device=numbers.device)
    for part, piece in zip(products.split(_PIECE), numbers.split(_PIECE), strict=True):
        part.copy_(piece.double().mul_(value))
    return products
