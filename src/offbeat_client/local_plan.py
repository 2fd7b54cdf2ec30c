"""The plan of a visit's local training."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from offbeat_client.number_checks import check_count, check_not_negative, check_positive

Payload = Literal["delta", "params", "difference"]
"""The content of an update; see ``docs/protocol.md``."""


@dataclass(frozen=True, slots=True)
class Compression:
    """The compression of an update, by a name in ``offbeat_client.compression``.

    Attributes:
        name: For instance ``top_k``.
        parameters: The compressor's parameters, for instance ``(("share", 0.01),)``.
    """

    name: str
    parameters: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """A client's work in a visit: ``steps`` of SGD from the model it downloaded.

    Attributes:
        steps: Local SGD steps, ≥ 1 (the papers' Q, k or C).
        batch_size: Examples a step, ≥ 1; a client with fewer uses all of them in every step.
        lr: Step size > 0, one for all steps or one for each (the papers' γ_t).
        momentum: ρ of SGD with momentum, 0 ≤ ρ < 1; the buffer starts at zero in every visit.
        weight_decay: λ ≥ 0, adds λw to the gradient after clipping, as ``torch.optim.SGD`` does.
        mu: FedProx's μ ≥ 0, adds μ(w − w_start) to the gradient; lr·μ < 2; not together with momentum.
        clip_norm: Largest norm of a step's gradient, its proximal term included; None does not clip.
        compression: The update's compressor; None sends it uncompressed.
        error_feedback: The client remembers the part that compression dropped and adds it to its next update.

    Raises:
        ValueError: A value is out of range.
    """

    steps: int
    batch_size: int
    lr: float | tuple[float, ...]
    momentum: float = 0.0
    weight_decay: float = 0.0
    mu: float = 0.0
    clip_norm: float | None = None
    compression: Compression | None = None
    error_feedback: bool = False

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        rates = self.lr if isinstance(self.lr, tuple) else (self.lr,)
        for rate in rates:
            check_positive("lr", rate)
        if isinstance(self.lr, tuple) and len(self.lr) != self.steps:
            raise ValueError(f"lr must be one number or a tuple of {self.steps}, one a step, got {len(self.lr)}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        check_not_negative("weight_decay", self.weight_decay)
        check_not_negative("mu", self.mu)
        if max(rates) * self.mu >= 2:
            raise ValueError(f"lr · mu must be less than 2, or the proximal term diverges, got {max(rates) * self.mu}")
        if self.momentum and self.mu:
            raise ValueError("momentum and mu cannot be combined: set one of them to 0")
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)
        if self.error_feedback and self.compression is None:
            raise ValueError("error_feedback makes up for compression: set compression, or leave it out")

    @property
    def path(self) -> float:
        """The sum of the visit's step sizes."""
        return math.fsum(self.lr) if isinstance(self.lr, tuple) else self.steps * self.lr

    def prefix(self, steps: int) -> "LocalPlan":
        """Return the plan of a visit that is cut short after the first ``steps``."""
        if not 1 <= steps <= self.steps:
            raise ValueError(f"steps must be in 1 … {self.steps}, got {steps}")
        return replace(self, steps=steps, lr=self.lr[:steps] if isinstance(self.lr, tuple) else self.lr)


@lru_cache  # bounded: AsyncCommSGD has a new plan for each visit
def normaliser(plan: LocalPlan) -> float:
    """Return FedNova's a_i, the total weight of a visit's gradients in its delta.

    Its unit is the mean lr. Wang et al., "Tackling the Objective Inconsistency Problem" (NeurIPS 2020), section 4. For
    one lr: plain SGD ``steps``; with momentum ρ ``(steps − ρ(1 − ρ^steps)/(1 − ρ))/(1 − ρ)``; with a proximal term
    ``(1 − (1 − lr·mu)^steps)/(lr·mu)``. It is computed step by step, so that lr may change.
    """
    rates = plan.lr if isinstance(plan.lr, tuple) else (plan.lr,) * plan.steps
    velocity = total = 0.0
    for rate in rates:
        velocity = plan.momentum * velocity + 1.0
        total = (1.0 - rate * plan.mu) * total + rate * velocity
    return total * len(rates) / sum(rates)
