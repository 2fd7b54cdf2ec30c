"""Factors of a step: shares p_i, staleness weights s(τ), step sizes γ_t."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from offbeat_core.number_checks import check_not_negative, check_positive
from torch import Tensor

from offbeat.algorithms.components.component import Component, RunFacts
from offbeat.algorithms.components.hyper_parameters import Weighting


class Shares(Component):
    """The shares p_i of all N clients, which sum to 1.

    They are in proportion to the run's data weights, or 1/N. They are saved, since a run that is resumed gets no data
    weights.

    Args:
        weighting: ``examples`` (p_i by the data weights, 1/N if there are none) or ``uniform``.
    """

    def __init__(self, weighting: Weighting) -> None:
        self.weighting: Weighting = weighting

    def __getitem__(self, client: int) -> float:
        """Return p_i."""
        return self._shares[client]

    def check_run(self, run: RunFacts) -> None:
        _shares(run, self.weighting)

    def start(self, run: RunFacts) -> None:
        self._shares = _shares(run, self.weighting)

    def state_dict(self) -> dict[str, Any]:
        return {"shares": torch.tensor(self._shares, dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._shares: list[float] = state["shares"].tolist()


def _shares(run: RunFacts, weighting: Weighting) -> list[float]:
    if run.data_weights is None or weighting == "uniform":
        return [1.0 / run.clients] * run.clients
    weights: Tensor = run.data_weights.to(torch.float64)
    if weights.shape != (run.clients,) or not bool((weights >= 0).all()) or not 0 < weights.sum() < torch.inf:
        raise ValueError(f"data_weights must be {run.clients} finite numbers of at least 0, not all 0")
    return (weights / weights.sum()).tolist()


@dataclass(frozen=True)
class Staleness:
    """A weight s(τ) of an update that is τ versions old; s(0) = 1.

    It has a name, so that it can be printed and saved. Polynomial and hinge weights are those of FedAsync (Xie, Koyejo
    and Gupta 2019, section 5.2), here with the count of τ beginning at 0; FedBuff (Nguyen et al. 2022) uses the
    polynomial one with a = ½.

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
        return _STALENESS_RULES[self.name](staleness, **self.parameters)


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

_STALENESS_RULES: dict[str, Callable[..., float]] = {
    "constant": lambda staleness: 1.0,
    "polynomial": lambda staleness, a: (1.0 + staleness) ** -a,
    "hinge": lambda staleness, a, b: 1.0 / (a * max(staleness - b, 0.0) + 1.0),
    "exponential": lambda staleness, a: math.exp(-a * staleness),
}


@dataclass(frozen=True)
class StepSizes:
    """Step sizes γ_t for rounds t, with a name, so that they can be printed and saved."""

    name: str
    parameters: Mapping[str, float] = field(default_factory=dict[str, float])

    def __call__(self, number: int) -> float:
        """Return γ_t for the round t = ``number`` ≥ 0."""
        return _STEP_SIZE_RULES[self.name](number, **self.parameters)


def inverse_time(strong_convexity: float = 1.0, smoothness: float = 1.0, gap: float = 1.0) -> StepSizes:
    """γ_t = 8/(λ(t + Δ + 8L/λ)) for λ-strongly convex, L-smooth losses; Δ = ``gap``.

    Δ ≥ 0. Avdyukhin and Kasiviswanathan (ICML 2021), Theorem 2.2.
    """
    check_positive("strong_convexity", strong_convexity)
    check_positive("smoothness", smoothness)
    check_not_negative("gap", gap)
    return StepSizes("inverse_time", {"strong_convexity": strong_convexity, "smoothness": smoothness, "gap": gap})


def inverse_square_root(initial: float = 0.1) -> StepSizes:
    """γ_t = initial/√(t + 1)."""
    check_positive("initial", initial)
    return StepSizes("inverse_square_root", {"initial": initial})


STEP_SIZES: dict[str, Callable[..., StepSizes]] = {make.__name__: make for make in (inverse_time, inverse_square_root)}

_STEP_SIZE_RULES: dict[str, Callable[..., float]] = {
    "inverse_time": lambda t, strong_convexity, smoothness, gap: (
        8 / (strong_convexity * (t + gap + 8 * smoothness / strong_convexity))
    ),
    "inverse_square_root": lambda t, initial: initial / math.sqrt(t + 1),
}
