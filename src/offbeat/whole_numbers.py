"""Private updates as whole numbers of steps, made when they are needed."""

from dataclasses import dataclass
from typing import Protocol

import torch
from offbeat_private.masks.fixed_point import whole_numbers
from torch import Tensor


class _Resolvable(Protocol):
    """An update that is computed when it is first needed."""

    def resolve(self) -> Tensor:
        """Return the vector, float32 ``(d,)``."""
        ...


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
        update: The update, or its promise.
        grid: The whole numbers.
        divisor: FedNova's a; 1 for other algorithms.
        scale: The weight by staleness, 0 … 1.
        key: 32 bytes for the rounding of this update.
    """

    update: Tensor | _Resolvable
    grid: Grid
    divisor: float
    scale: float
    key: bytes

    def resolve(self) -> Tensor:
        """Return the numbers, on the update's device; zeros if the update is not finite."""
        vector = self.update if isinstance(self.update, Tensor) else self.update.resolve()
        numbers = whole_numbers(
            vector.detach().cpu().numpy(),
            clip_norm=self.grid.clip_norm,
            largest=self.grid.largest,
            key=self.key,
            divisor=self.divisor,
            scale=self.scale,
        )
        return torch.from_numpy(numbers).to(vector.device)
