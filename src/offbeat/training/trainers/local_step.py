"""A step of local training, and AdamW's rule for one model and for stacked models.

``torch.optim.AdamW`` has one step size for all entries of a tensor; stacked models have one each.
"""

import math

import torch
from torch import Tensor

from offbeat.algorithms.components import LocalPlan

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # torch's defaults


class AdamW:
    """The steps of one tensor, whose moments start at zero.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019).

    Args:
        weights: A tensor of the shape of the weights, not of size ().
    """

    def __init__(self, weights: Tensor) -> None:
        self._mean = torch.zeros_like(weights)
        self._square = torch.zeros_like(weights)
        self._steps = 0

    def step(self, weights: Tensor, gradient: Tensor, rate: float | Tensor, weight_decay: float) -> None:
        """Change the weights in place.

        Weights and gradient may be those of the first models only, once the others have finished. The step size
        ``rate`` is a number, with which the step is bit-equal to that of ``torch.optim.AdamW``, or a tensor that
        broadcasts with the weights.
        """
        self._steps += 1
        mean, square = self._mean[: len(weights)], self._square[: len(weights)]
        if weight_decay:
            weights.mul_(1 - rate * weight_decay)
        mean.lerp_(gradient, 1 - _BETA1)
        square.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        scale = square.sqrt().div_(math.sqrt(1 - _BETA2**self._steps)).add_(_EPSILON)
        rate = rate / (1 - _BETA1**self._steps)
        if isinstance(rate, Tensor):
            weights.addcmul_(mean / scale, rate, value=-1)
        else:
            weights.addcdiv_(mean, scale, value=-rate)


def local_step(
    weights: Tensor,
    gradient: Tensor,
    velocity: Tensor | None,
    start: Tensor,
    plan: LocalPlan,
    step: int,
    offset: Tensor | None = None,
    adamw: AdamW | None = None,
) -> None:
    """Take a step of local training in place; all tensors are ``(d,)``.

    The first step has index 0. Weights and velocity, which is zero before the first step and None without momentum, are
    changed, as are AdamW's moments; the gradient is overwritten. The offset is added to it.
    """
    if offset is not None:
        gradient.add_(offset)
    if plan.mu:
        gradient.add_(weights - start, alpha=plan.mu)
    if plan.clip_norm is not None:
        norm = torch.linalg.vector_norm(gradient).double()
        is_too_long = (norm > plan.clip_norm) & norm.isfinite()
        gradient.mul_(torch.where(is_too_long, plan.clip_norm / norm, 1.0).float())
    lr = plan.lr[step] if isinstance(plan.lr, tuple) else plan.lr
    if adamw is not None:
        adamw.step(weights, gradient, lr, plan.weight_decay)
        return
    if plan.weight_decay:
        gradient.add_(weights, alpha=plan.weight_decay)
    if velocity is not None:
        gradient = velocity.mul_(plan.momentum).add_(gradient)
    weights.sub_(gradient, alpha=lr)


def stacked_step(
    weights: dict[str, Tensor],
    slopes: dict[str, Tensor],
    starts: dict[str, Tensor],
    velocity: dict[str, Tensor] | None,
    adamw: dict[str, AdamW] | None,
    rates: Tensor,
    plan: LocalPlan,
) -> None:
    """Take ``local_step`` for each of stacked models, in place.

    Tensors are ``(models, …)``, step sizes ``(models,)``; the plan's own are not used.
    """
    models = len(rates)
    if plan.mu:
        for name, slope in slopes.items():
            slope.add_(weights[name] - starts[name][:models], alpha=plan.mu)
    if plan.clip_norm is not None:
        squares = [slope.reshape(models, -1).to(torch.float64).square().sum(dim=1) for slope in slopes.values()]
        norms = torch.stack(squares).sum(dim=0).sqrt()
        too_long = (norms > plan.clip_norm) & norms.isfinite()
        factors = torch.where(too_long, plan.clip_norm / norms, 1.0).float()
        for slope in slopes.values():
            slope.mul_(along(factors, slope))
    for name, slope in slopes.items():
        if adamw is not None:
            adamw[name].step(weights[name], slope, along(rates, slope), plan.weight_decay)
            continue
        if plan.weight_decay:
            slope.add_(weights[name], alpha=plan.weight_decay)
        if velocity is not None:
            slope = velocity[name][:models].mul_(plan.momentum).add_(slope)
        weights[name].addcmul_(slope, along(rates, slope), value=-1)


def along(values: Tensor, other: Tensor) -> Tensor:
    """Return values ``(models,)`` in a shape that broadcasts with ``(models, …)``."""
    return values.view(-1, *[1] * (other.dim() - 1))
