"""Dropout in a batch of models: each drops what it would drop alone.

``torch.func.vmap`` has no random numbers that would not change with the batch. So calls of ``torch.nn.functional``'s
dropout are taken over in the batched forward pass, the layers' as well as a model's own: for each model the noise is
drawn as PyTorch draws it on the CPU, by a call of ``bernoulli_`` with the same shape and order in memory, but from the
model's own generator. Other random numbers remain vmap's to refuse, attention's own dropout among them.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_ALPHA = 1.7580993408473766  # as in ATen; −SELU's value at −∞


class _Kind(NamedTuple):
    """What a kind of dropout does.

    Attributes:
        channels: Whether it drops whole channels, all that an example has in its second dimension.
        alpha: Whether what it drops gets SELU's lowest value, not 0.
        lone: Dimensions of an input that it takes for one example without the first dimension.
    """

    channels: bool = False
    alpha: bool = False
    lone: int = 0


_KINDS: dict[Callable[..., Any], _Kind] = {
    functional.dropout: _Kind(),
    functional.dropout1d: _Kind(channels=True, lone=2),
    functional.dropout2d: _Kind(channels=True),
    functional.dropout3d: _Kind(channels=True, lone=4),
    functional.alpha_dropout: _Kind(alpha=True),
    functional.feature_alpha_dropout: _Kind(channels=True, alpha=True),
}


Draw = tuple[Callable[..., Any], float, torch.Size]
"""What was drawn: for which function, with which probability, and the noise's shape."""


class Dropout(TorchFunctionMode):
    """The dropout of a batch of models during one visit each.

    Args:
        seeds: For each model what its random numbers begin from. A step may be of the first of them alone, or of more.

    Attributes:
        draws: What each model has drawn in the latest step, in order.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._batched = torch.empty(0)
        self.draws: list[Draw] = []

    @contextmanager
    def step(self, batched: Tensor) -> Generator[None]:
        """Take over the dropout of one forward pass within ``vmap``.

        Args:
            batched: Any tensor over which vmap maps, as it is seen within.
        """
        self._batched = batched
        self.draws = []
        with self:
            yield

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, or do in its place what it would."""
        if func in _KINDS:  # these tell a mode their defaults too
            return self._dropped(func, *args, **kwargs or {})
        return func(*args, **kwargs or {})

    def _dropped(self, func: Callable[..., Any], values: Tensor, *, p: float, training: bool, inplace: bool) -> Tensor:
        kind, p = _KINDS[func], float(p)
        if not training or p == 0 or not values.numel():
            return values
        if p == 1:  # nothing is drawn
            return values.mul_(0.0) if inplace else values * 0.0
        # Noise lies in memory as the values do, and in that order it is drawn.
        like = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device="meta")
        if kind.channels:
            kept = 1 if len(like.shape) == kind.lone else 2
            like = like.new_empty(like.shape[:kept] + (1,) * (len(like.shape) - kept))
        self.draws.append((func, p, like.shape))
        noise: Tensor = _Noise.apply(self._batched, self._generators, 1 - p, like)  # pyright: ignore[reportAssignmentType]
        if not kind.alpha:
            noise = noise / (1 - p)
            return values.mul_(noise) if inplace else values * noise
        scale = 1 / sqrt((_ALPHA**2 * p + 1) * (1 - p))
        shift = (noise - 1) * (_ALPHA * scale) + _ALPHA * scale * p
        noise = noise * scale
        return values.mul_(noise).add_(shift) if inplace else values * noise + shift


class _Noise(torch.autograd.Function):
    """Zeros and ones for each model from its own generator, and ones where there is none; without derivative.

    A function of its own, since vmap refuses to draw within, but a function's rule for vmap may draw.
    """

    @staticmethod
    def forward(batched: Tensor, generators: Sequence[torch.Generator], keep: float, like: Tensor) -> Tensor:
        """Refuse: there is but one model."""
        raise NotImplementedError("only within vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Say that there is no derivative."""
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        """Return noise ``(models, …)``, for each model as ``like`` is, and which dimension is the models'."""
        _, generators, keep, like = args
        strides = torch.empty_like(like).stride()
        noise = torch.empty_strided((info.batch_size, *like.shape), (like.numel(), *strides), dtype=like.dtype).fill_(1)
        for row, generator in zip(noise, generators, strict=False):
            row.bernoulli_(keep, generator=generator)
        return noise, 0
