"""Dropout in a batch of models, with the same noise as for each model alone.

Random numbers of ``torch.func.vmap`` depend on the batch. So all calls of ``torch.nn.functional``'s dropout in the
batched forward pass are intercepted: each model's noise is drawn as PyTorch draws it on the CPU, by a call of
``bernoulli_`` with the same shape and memory layout, but from a generator for each model. vmap still refuses other
random numbers, such as the dropout inside attention.
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


class _Variant(NamedTuple):
    channels: bool = False  # it drops complete channels
    alpha: bool = False  # dropped values become SELU's lowest value instead of 0
    unbatched: int = 0  # number of dimensions of an input that is a single example without batch dimension


_VARIANTS: dict[Callable[..., Any], _Variant] = {
    functional.dropout: _Variant(),
    functional.dropout1d: _Variant(channels=True, unbatched=2),
    functional.dropout2d: _Variant(channels=True),
    functional.dropout3d: _Variant(channels=True, unbatched=4),
    functional.alpha_dropout: _Variant(alpha=True),
    functional.feature_alpha_dropout: _Variant(channels=True, alpha=True),
}


Draw = tuple[Callable[..., Any], float, torch.Size]
"""A function of dropout, its probability, and the shape of the noise."""


class Dropout(TorchFunctionMode):
    """The dropout of a batch of models during one visit each.

    Each model has a generator with its own seed; a step may have fewer or more models than seeds. ``draws`` are those
    of each model in the latest step, in order. ``rows`` has the index of the seed of each model in the next step; None
    for a model without dropout.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.rows: Sequence[int | None] = range(len(seeds))
        self._batched = torch.empty(0)
        self.draws: list[Draw] = []

    @contextmanager
    def step(self, batched: Tensor) -> Generator[None]:
        """Intercept the dropout of one forward pass within ``vmap``.

        ``vmap`` maps over the tensor ``batched``.
        """
        self._batched = batched
        self.draws = []
        with self:
            yield

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _VARIANTS:  # these pass their defaults explicitly
            return self._drop(func, *args, **kwargs or {})
        return func(*args, **kwargs or {})

    def _drop(self, func: Callable[..., Any], values: Tensor, *, p: float, training: bool, inplace: bool) -> Tensor:
        variant, p = _VARIANTS[func], float(p)
        if not training or p == 0 or not values.numel():
            return values
        if p == 1:  # nothing is drawn
            return values.mul_(0.0) if inplace else values * 0.0
        # Noise has the memory layout of the values, which determines the order of the draws.
        like = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device="meta")
        if variant.channels:
            kept = 1 if len(like.shape) == variant.unbatched else 2
            like = like.new_empty(like.shape[:kept] + (1,) * (len(like.shape) - kept))
        self.draws.append((func, p, like.shape))
        generators = [None if row is None else self._generators[row] for row in self.rows]
        noise: Tensor = _Noise.apply(self._batched, generators, 1 - p, like)  # pyright: ignore[reportAssignmentType]
        if not variant.alpha:
            noise = noise / (1 - p)
            return values.mul_(noise) if inplace else values * noise
        scale = 1 / sqrt((_ALPHA**2 * p + 1) * (1 - p))
        shift = (noise - 1) * (_ALPHA * scale) + _ALPHA * scale * p
        noise = noise * scale
        return values.mul_(noise).add_(shift) if inplace else values * noise + shift


class _Noise(torch.autograd.Function):
    """Zeros and ones from each model's generator, without derivative.

    Models without generator get ones. This is an autograd function, because vmap refuses random numbers inside, but not
    in a function's vmap rule.
    """

    @staticmethod
    def forward(batched: Tensor, generators: Sequence[torch.Generator | None], keep: float, like: Tensor) -> Tensor:
        raise NotImplementedError("only within vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        """Return noise ``(models, *like.shape)`` and the index of the models' dimension."""
        batched, generators, keep, like = args
        strides = torch.empty_like(like).stride()
        noise = torch.empty_strided((info.batch_size, *like.shape), (like.numel(), *strides), dtype=like.dtype).fill_(1)
        for row, generator in zip(noise, generators, strict=False):
            if generator is not None:
                row.bernoulli_(keep, generator=generator)
        return noise.to(batched.device), 0
