"""Private updates and their sums as whole numbers of steps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from offbeat.algorithms.components.update import Vector, resolve
from offbeat_client.privacy.fixed_point import whole_numbers

_PIECE = 1 << 16  # numbers at a time


@dataclass(frozen=True)
class Grid:
    """The whole numbers that private updates are rounded to.

    Attributes:
        clip_norm: C, the largest norm of an update.
        largest: C in steps.
    """

    clip_norm: float
    largest: int

    @property
    def step(self) -> float:
        """The value of the whole number 1."""
        return self.clip_norm / self.largest


@dataclass(frozen=True)
class WholeNumbers:
    """The promise of an update, divided, clipped, scaled and rounded, int32 ``(d,)``.

    Attributes:
        vector: The update, or its promise.
        length: d.
        grid: The whole numbers.
        divisor: FedNova's a; 1 for other algorithms.
        scale: The weight by staleness, 0 … 1.
        key: 32 bytes for the rounding of this update.
    """

    vector: Vector
    length: int
    grid: Grid
    divisor: float
    scale: float
    key: bytes

    def resolve(self) -> Tensor:
        """Return the numbers, on the update's device; zeros if the update is not finite."""
        vector = resolve(self.vector, self.length)
        numbers = whole_numbers(
            vector.cpu().numpy(),
            clip_norm=self.grid.clip_norm,
            largest=self.grid.largest,
            key=self.key,
            divisor=self.divisor,
            scale=self.scale,
        )
        return torch.from_numpy(numbers).to(vector.device)


def values(numbers: Tensor, value: float) -> Tensor:
    """Return ``value · numbers``, float32 ``(d,)``; each product is rounded once.

    The products in float64 are made a piece at a time: all of them would be new memory, which takes longer to get than
    to fill.
    """
    products = torch.empty(len(numbers), device=numbers.device)
    for part, piece in zip(products.split(_PIECE), numbers.split(_PIECE), strict=True):
        part.copy_(piece.double().mul_(value))
    return products
