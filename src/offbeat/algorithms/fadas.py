"""FADAS: FedBuff with AMSGrad steps that shrink when updates are old."""

from typing import Annotated, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from offbeat.algorithms.components import Algorithm, ClosedBuffer, Continuous, Count, Positive, Sum

Momentum = Annotated[float, Interval(ge=0, lt=1)]


class FADAS(Algorithm):
    """Buffered asynchronous AMSGrad, with a step size that adapts to delays.

    At the K-th arrival, with Δ the mean of the K deltas: ``m ← β1 m + (1 − β1) Δ``, ``v ← β2 v + (1 − β2) Δ²``,
    ``v̂ ← max(v̂, v)`` and ``w ← w − η_t m / (√v̂ + ε)``, each coordinate by itself. Let τ_max be the staleness of the
    buffer's oldest update. η_t is η = ``server_lr`` up to τ_max = τ_c, and beyond it

    - ``variant = "paper"``: min(η, 1/τ_max);
    - ``variant = "code"``: η/τ_max; and m is divided by 1 − β1^t, v̂ by 1 − β2^t, t = 1, 2, … counting the steps.

    Wang, Wang, Lu and Chen, "FADAS: Towards Federated Adaptive Asynchronous Optimization" (ICML 2024), Algorithm 1 and
    its delay-adaptive step size; the variant ``code`` is that of the authors' code (``yujiaw98/FADAS`` on GitHub).

    Args:
        buffer_size: K ≥ 1.
        server_lr: η > 0.
        beta1: 0 ≤ β1 < 1.
        beta2: 0 ≤ β2 < 1.
        epsilon: ε > 0.
        delay_bound: τ_c ≥ 1, in versions; None for η_t = η throughout.
        variant: ``code`` or ``paper``.
        concurrency: Clients at work at the same time, ≥ 1.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FADAS(buffer_size=4, server_lr=0.01), **world)
        >>> int(history.version.iloc[-1])  # 4 a version
        5
    """

    name = "fadas"
    grows = True

    buffer_size: Count = 10
    server_lr: Positive = 0.01
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    epsilon: Positive = 1e-8
    delay_bound: Count | None = None
    variant: Literal["code", "paper"] = "code"
    concurrency: Count = 100

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = Sum()

    def begin(self, model: Tensor) -> None:
        self.first_moment = torch.zeros_like(model)  # m
        self.second_moment = torch.zeros_like(model)  # v
        self.largest_moment = torch.zeros_like(model)  # v̂

    def is_ready(self) -> bool:
        return self.buffer.count >= self.buffer_size

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        delta, step = closed.mean(closed.count), closed.version + 1
        self.first_moment = self.first_moment.lerp(delta, 1 - self.beta1)
        self.second_moment = self.second_moment.lerp(delta.square(), 1 - self.beta2)
        self.largest_moment = torch.maximum(self.largest_moment, self.second_moment)
        lr, second = self.step_size(closed), self.largest_moment
        if self.variant == "code":
            lr, second = lr / (1 - self.beta1**step), second / (1 - self.beta2**step)
        return model.addcdiv(self.first_moment, second.sqrt() + self.epsilon, value=-lr)

    def step_size(self, closed: ClosedBuffer) -> float:
        """Return η_t."""
        assert closed.oldest is not None
        delay = closed.version - closed.oldest
        if self.delay_bound is None or delay <= self.delay_bound:
            return self.server_lr
        return min(self.server_lr, 1 / delay) if self.variant == "paper" else self.server_lr / delay
