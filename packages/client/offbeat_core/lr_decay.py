"""Decays of the step size: a visit that starts at version v has lr · f(v).

f(0) = 1, and f never grows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from offbeat_core.number_checks import check_count, check_positive, is_number, plain_number


@dataclass(frozen=True, slots=True)
class LrDecay:
    """A decay f(v) with a name, so that it can be printed and saved.

    Attributes:
        name: As in a configuration, for instance ``exponential``.
        parameters: The decay's parameters, for instance ``(("factor", 0.99),)``.
    """

    name: str
    parameters: tuple[tuple[str, float], ...]

    def __call__(self, version: int) -> float:
        """Return f(v) for v = ``version`` ≥ 0; it may underflow to 0."""
        return _RULES[self.name](version, **dict(self.parameters))


def exponential(factor: float) -> LrDecay:
    """f(v) = factor^v, 0 < factor ≤ 1."""
    return LrDecay("exponential", (("factor", _checked(factor)),))


def step(every: int, factor: float = 0.1) -> LrDecay:
    """f(v) = factor^⌊v / every⌋, every ≥ 1, 0 < factor ≤ 1."""
    return LrDecay("step", (("every", check_count("every", every)), ("factor", _checked(factor))))


def inverse_square_root(versions: float = 1.0) -> LrDecay:
    """f(v) = 1/√(1 + v / versions), versions > 0."""
    return LrDecay("inverse_square_root", (("versions", check_positive("versions", versions)),))


LR_DECAYS: dict[str, Callable[..., LrDecay]] = {
    make.__name__: make for make in (exponential, step, inverse_square_root)
}

_RULES: dict[str, Callable[..., float]] = {
    "exponential": lambda version, factor: factor**version,
    "step": lambda version, every, factor: factor ** (version // every),
    "inverse_square_root": lambda version, versions: 1.0 / sqrt(1.0 + version / versions),
}


def _checked(factor: float) -> float:
    number = plain_number(factor)
    if not is_number(number) or not 0 < number <= 1:
        raise ValueError(f"factor must be in (0, 1], got {factor!r}")
    return number
