"""The plan of a visit's local training."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import Literal, get_args

from offbeat_core.lr_decay import LrDecay
from offbeat_core.number_checks import check_count, check_not_negative, check_positive, is_number, plain_number

MOST_STEPS = 1_000_000
"""The largest number of steps that may follow from a client's number of examples."""

StepsRule = Callable[[int, int], int]
"""Maps a client's number of examples and the size of minibatches to its steps, 1 … ``MOST_STEPS``."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """The steps of E = ``epochs`` passes over a client's n examples.

    A pass has ⌈n / batch_size⌉ minibatches, as in McMahan et al. (2017). E times as many steps are rounded to the
    nearest whole number, halves up, and are at least 1.

    Raises:
        ValueError: Not 0 < E < ∞; or when called, if there are more than ``MOST_STEPS``.
    """

    epochs: float

    def __post_init__(self) -> None:
        check_positive("epochs", self.epochs)

    def __call__(self, examples: int, batch_size: int) -> int:
        """Return the steps of a client with so many examples, ≥ 1."""
        steps = max(1, math.floor(self.epochs * -(-examples // batch_size) + 0.5))
        if steps > MOST_STEPS:
            raise ValueError(
                f"local.epochs = {self.epochs:g} is {steps:,} steps for {count_examples(examples)}: at most "
                f"{MOST_STEPS:,} are possible"
            )
        return steps


def count_examples(number: int) -> str:
    """Return a number of examples in words."""
    return "1 example" if number == 1 else f"{number:,} examples"


Payload = Literal["delta", "params", "difference"]
"""The content of an update; see ``docs/protocol.md``."""

Optimizer = Literal["sgd", "adamw"]

_SMALLEST_LR = 2.0**-126  # the smallest normal float32; a decay may underflow, but a step size is above 0


@dataclass(frozen=True, slots=True)
class Compression:
    """The compression of an update, by a name in ``offbeat_core.compression``.

    Attributes:
        name: For instance ``top_k``.
        parameters: The compressor's parameters, for instance ``(("share", 0.01),)``.

    Examples:
        >>> plan = LocalPlan(steps=5, batch_size=10, lr=0.1, compression=Compression("top_k", (("share", 0.01),)))
    """

    name: str
    parameters: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """A client's work in a visit: local steps from the model it downloaded.

    Attributes:
        steps: Local steps, ≥ 1 (the papers' Q, k or C). 1 in a run's plan with ``steps_by``.
        batch_size: Examples a step, ≥ 1; a client with fewer uses all of them in every step.
        lr: Step size > 0, one for all steps or one for each (the papers' γ_t).
        momentum: ρ of SGD with momentum, 0 ≤ ρ < 1; the buffer starts at zero in every visit.
        weight_decay: λ ≥ 0. SGD adds λw to the gradient after clipping, AdamW first shrinks w by the factor 1 − lr·λ,
            as ``torch.optim.SGD`` and ``torch.optim.AdamW`` do. The default is 0 for both.
        mu: FedProx's μ ≥ 0, adds μ(w − w_start) to the gradient; lr·μ < 2; not together with momentum.
        clip_norm: Largest norm of a step's gradient, its proximal term included; None does not clip.
        compression: The update's compressor; None sends it uncompressed.
        error_feedback: The client remembers the part that compression dropped and adds it to its next update.
        optimizer: ``sgd``, or ``adamw`` with betas 0.9 and 0.999 and ε = 1e-8, whose moments start at zero in every
            visit. AdamW takes neither momentum nor mu: it would rescale the proximal term.
        lr_decay: Of a run's plan: how lr falls with the version that a visit starts at; see ``at``. None in the plan of
            a visit.
        by_epochs: How the client goes through its n examples, each pass in a new random order. If true, a pass ends
            with a smaller minibatch where ``batch_size`` does not divide n, as in McMahan et al. (2017); if false, all
            minibatches are full, and one goes on into the next pass.
        steps_by: Of a run's plan: the steps of a client by its number of examples; see ``of``. None if all take
            ``steps``, and in the plan of a visit.

    Raises:
        ValueError: A value is out of range.

    Examples:
        >>> LocalPlan(steps=5, batch_size=10, lr=0.1, momentum=0.9).path
        0.5
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
    optimizer: Optimizer = "sgd"
    lr_decay: LrDecay | None = None
    by_epochs: bool = False
    steps_by: StepsRule | None = None

    def __post_init__(self) -> None:
        self._set("steps", check_count("steps", self.steps))
        self._set("batch_size", check_count("batch_size", self.batch_size))
        many = isinstance(self.lr, list | tuple) or getattr(self.lr, "ndim", 0)
        rates = tuple(check_positive("lr", rate) for rate in (self.lr if many else (self.lr,)))  # pyright: ignore[reportGeneralTypeIssues]
        self._set("lr", rates if many else rates[0])
        if self.steps_by is not None and (self.steps > 1 or isinstance(self.lr, tuple)):
            raise ValueError("steps follow from steps_by: leave steps 1, and give lr as one number")
        if isinstance(self.lr, tuple) and len(self.lr) != self.steps:
            raise ValueError(f"lr must be one number or a tuple of {self.steps}, one a step, got {len(self.lr)}")
        self._set("momentum", plain_number(self.momentum))
        if not is_number(self.momentum) or not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        self._set("weight_decay", check_not_negative("weight_decay", self.weight_decay))
        self._set("mu", check_not_negative("mu", self.mu))
        if max(rates) * self.mu >= 2:
            raise ValueError(f"lr · mu must be less than 2, or the proximal term diverges, got {max(rates) * self.mu}")
        if self.momentum and self.mu:
            raise ValueError("momentum and mu cannot be combined: set one of them to 0")
        if self.clip_norm is not None:
            self._set("clip_norm", check_positive("clip_norm", self.clip_norm))
        if self.error_feedback and self.compression is None:
            raise ValueError("error_feedback makes up for compression: set compression, or leave it out")
        if self.optimizer not in get_args(Optimizer):
            raise ValueError(f"optimizer must be 'sgd' or 'adamw', got {self.optimizer!r}")
        if self.optimizer == "adamw" and (self.momentum or self.mu):
            name = "momentum" if self.momentum else "mu"
            raise ValueError(f"{name} is for SGD: set optimizer to 'sgd', or {name} to 0")
        if not isinstance(self.lr_decay, LrDecay | None):  # pyright: ignore[reportUnnecessaryIsInstance] - notebooks
            raise ValueError(f"lr_decay must be a decay such as exponential(0.99), got {self.lr_decay!r}")

    def _set(self, name: str, value: object) -> None:
        """Put Python's number in the place of one of numpy or torch."""
        object.__setattr__(self, name, value)

    @property
    def path(self) -> float:
        """The sum of the visit's step sizes."""
        return math.fsum(self.lr) if isinstance(self.lr, tuple) else self.steps * self.lr

    def prefix(self, steps: int) -> "LocalPlan":
        """Return the plan of a visit that is cut short after the first ``steps``."""
        if not 1 <= steps <= self.steps:
            raise ValueError(f"steps must be in 1 … {self.steps}, got {steps}")
        return self if steps == self.steps else _prefix(self, steps)

    def minibatch_sizes(self, examples: int) -> list[int]:
        """Return the size of each step's minibatch for a client with so many examples."""
        size = min(self.batch_size, examples)
        last = examples % size
        if not self.by_epochs or not last:
            return [size] * self.steps
        epoch = [size] * (examples // size) + [last]
        return (epoch * -(-self.steps // len(epoch)))[: self.steps]

    def of(self, examples: int) -> "LocalPlan":
        """Return the plan of a client with so many examples, ≥ 1.

        ``ValueError`` or ``OffbeatError`` if no steps follow from them.
        """
        return self if self.steps_by is None else self.with_steps(self.steps_by(examples, self.batch_size))

    def with_steps(self, steps: int) -> "LocalPlan":
        """Return the plan of a client whose steps follow from ``steps_by``."""
        by_epochs = self.by_epochs or isinstance(self.steps_by, Epochs)
        return replace(self, steps=steps, by_epochs=by_epochs, steps_by=None)

    def at(self, version: int) -> "LocalPlan":
        """Return the plan of a visit that starts at this version, with decayed step sizes."""
        return self if self.lr_decay is None else _decayed(self, self.lr_decay, version)


@lru_cache
def _prefix(plan: LocalPlan, steps: int) -> LocalPlan:
    return replace(plan, steps=steps, lr=plan.lr[:steps] if isinstance(plan.lr, tuple) else plan.lr)


@lru_cache  # most visits start at one of the last versions
def _decayed(plan: LocalPlan, decay: LrDecay, version: int) -> LocalPlan:
    factor = decay(version)

    def decayed(lr: float) -> float:
        return max(lr * factor, _SMALLEST_LR)

    lr = tuple(map(decayed, plan.lr)) if isinstance(plan.lr, tuple) else decayed(plan.lr)
    return replace(plan, lr=lr, lr_decay=None)


@lru_cache  # bounded: AsyncCommSGD has a new plan for each visit
def normaliser(plan: LocalPlan) -> float:
    """Return FedNova's a_i, the total weight of a visit's gradients in its delta.

    Its unit is the mean lr. Wang et al., "Tackling the Objective Inconsistency Problem" (NeurIPS 2020), section 4. For
    one lr: plain SGD ``steps``; with momentum ρ ``(steps − ρ(1 − ρ^steps)/(1 − ρ))/(1 − ρ)``; with a proximal term
    ``(1 − (1 − lr·mu)^steps)/(lr·mu)``. It is computed step by step, so that lr may change. AdamW has no such weights;
    here it counts as plain SGD does.
    """
    velocity = total = 0.0
    for rate in _rates(plan):
        velocity = plan.momentum * velocity + 1.0
        total = (1.0 - rate * plan.mu) * total + rate * velocity
    return total * plan.steps / sum(_rates(plan))


def _rates(plan: LocalPlan) -> Iterable[float]:
    # Not a tuple: a server may ask for any number of steps.
    return plan.lr if isinstance(plan.lr, tuple) else repeat(plan.lr, plan.steps)
