"""Sums of clipped updates with noise, by a server that sees each update."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Weight
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.wrappers import Wrap, Wrapper, clipped
from offbeat.algorithms.components.update import Update, Vector, resolve

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm


class NoisySum(Wrapper):
    """A sum of updates of norm C or less, with noise on each release.

    An update is clipped to C times its algorithm's ``divisor``, and weighs at most 1 after the division by it. So one
    client changes the sum by no more than C, the sensitivity that the noise is made for. The weights of most algorithms
    are below 1 for late updates; the noise is not scaled down with them. An update that is not finite counts as zeros:
    refused, it would tell that its client's training diverged.

    Args:
        inner: The buffer that it is around.
        algorithm: Whose buffer it is.
        clip_norm: C.
        noise: Maps the number of a release, 1, 2, …, to its noise, float32 ``(d,)``; None for no noise.
        least: The fewest updates in a sum.
    """

    def __init__(
        self,
        inner: Aggregate,
        algorithm: "Algorithm[Any]",
        *,
        clip_norm: float,
        noise: Callable[[int], Tensor] | None,
        least: int,
    ) -> None:
        super().__init__(inner)
        self.clip_norm = clip_norm
        self.least = least
        self._algorithm = algorithm
        self._noise = noise

    def add(self, update: Update, weight: float | Weight) -> None:
        """Pass a clipped update on; a ``ValueError`` if it would weigh more than 1."""
        assert update.plan is not None
        divisor = self._algorithm.divisor(update.plan)
        scale = (weight.value if isinstance(weight, Weight) else weight) * divisor
        if not 0 <= scale <= 1:
            raise ValueError(f"an update weighs {scale:.6g}, at most 1 is private")
        finite = update._replace(vector=_FiniteOrZeros(update.vector, self._run.length))
        self.inner.add(clipped(finite, self.clip_norm * divisor, self._run.length), weight)

    def release(self, version: int) -> ClosedBuffer:
        closed = self.inner.release(version)
        noise = self._noise
        if noise is None:
            return closed
        numbers: dict[str, Any] = {name: getattr(closed, name) for name in ("count", "weight", "tallies", "oldest")}
        return ClosedBuffer(version, lambda: closed.total() + noise(version + 1).to(closed.total().device), **numbers)


class _FiniteOrZeros:
    """The promise of a vector, or of zeros if it is not finite."""

    def __init__(self, vector: Vector, length: int) -> None:
        self._vector = vector
        self._length = length

    def resolve(self) -> Tensor:
        vector = resolve(self._vector, self._length)
        return vector if vector.isfinite().all() else torch.zeros_like(vector)


def noisy(*, clip_norm: float, noise: Callable[[int], Tensor] | None, least: int) -> Wrap:
    """Return a function that wraps a buffer of deltas in a ``NoisySum``."""

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        buffer = check_private_sum(algorithm, is_masked=False, is_noisy=noise is not None)
        return NoisySum(buffer, algorithm, clip_norm=clip_norm, noise=noise, least=least)

    return wrap
