"""Step sizes γ_t by round."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from offbeat_core.number_checks import check_not_negative, check_positive


@dataclass(frozen=True)
class StepSizes:
    """Step sizes γ_t for rounds t, with a name, so that they can be printed and saved."""

    name: str
    parameters: Mapping[str, float] = field(default_factory=dict[str, float])

    def __call__(self, number: int) -> float:
        """Return γ_t for the round t = ``number`` ≥ 0."""
        return _RULES[self.name](number, **self.parameters)


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

_RULES: dict[str, Callable[..., float]] = {
    "inverse_time": lambda t, strong_convexity, smoothness, gap: (
        8 / (strong_convexity * (t + gap + 8 * smoothness / strong_convexity))
    ),
    "inverse_square_root": lambda t, initial: initial / math.sqrt(t + 1),
}
