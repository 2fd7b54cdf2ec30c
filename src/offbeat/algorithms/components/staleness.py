"""Staleness weights s(τ) of an update that is τ versions old; s(0) = 1.

Polynomial and hinge weights are those of FedAsync (Xie, Koyejo and Gupta 2019, section 5.2), here with the count of τ
beginning at 0; FedBuff (Nguyen et al. 2022) uses the polynomial one with a = ½.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from offbeat_core.number_checks import check_not_negative


@dataclass(frozen=True)
class Staleness:
    """A staleness weight s(τ) with a name, so that it can be printed and saved.

    Attributes:
        name: As in a configuration, for instance ``polynomial``.
        parameters: The weight's own parameters by name, each ≥ 0.
    """

    name: str
    parameters: dict[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        numbers = {name: check_not_negative(name, value) for name, value in self.parameters.items()}
        object.__setattr__(self, "parameters", numbers)

    def __call__(self, staleness: int) -> float:
        """Return s(τ) for τ = ``staleness`` ≥ 0."""
        return _RULES[self.name](staleness, **self.parameters)


def constant() -> Staleness:
    """s(τ) = 1."""
    return Staleness("constant")


def polynomial(a: float = 0.5) -> Staleness:
    """s(τ) = (1 + τ)^−a, a ≥ 0."""
    return Staleness("polynomial", {"a": a})


def hinge(a: float = 10.0, b: float = 4.0) -> Staleness:
    """s(τ) = 1 up to τ = b, then 1/(a(τ − b) + 1); a ≥ 0, b ≥ 0. Continuous at b."""
    return Staleness("hinge", {"a": a, "b": b})


def exponential(a: float = 0.5) -> Staleness:
    """s(τ) = e^(−aτ), a ≥ 0."""
    return Staleness("exponential", {"a": a})


STALENESS: dict[str, Callable[..., Staleness]] = {
    make.__name__: make for make in (constant, polynomial, hinge, exponential)
}

_RULES: dict[str, Callable[..., float]] = {
    "constant": lambda staleness: 1.0,
    "polynomial": lambda staleness, a: (1.0 + staleness) ** -a,
    "hinge": lambda staleness, a, b: 1.0 / (a * max(staleness - b, 0.0) + 1.0),
    "exponential": lambda staleness, a: math.exp(-a * staleness),
}
