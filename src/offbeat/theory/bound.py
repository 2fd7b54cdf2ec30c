"""A theorem's bound: a number, and the assumptions that it rests on."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Assumption:
    """One thing that a theorem assumes.

    Attributes:
        text: The assumption in this setting, for instance ``T = 1000 is below 160 L (Q + 7)(τ + 1)³ = 1280``.
        holds: Whether the setting meets it. What only the caller can know, such as L, holds as given.
        given: Whether only the caller can know.
    """

    text: str
    holds: bool
    given: bool = False


@dataclass(frozen=True)
class Bound:
    """A theorem's right-hand side in one setting.

    Attributes:
        value: What the formula gives; ``inf`` where it gives nothing. Proven only if ``holds``.
        assumptions: What the theorem assumes.
    """

    value: float
    assumptions: tuple[Assumption, ...]

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions that the setting does not meet."""
        return tuple(assumption for assumption in self.assumptions if not assumption.holds)

    @property
    def holds(self) -> bool:
        """True if the setting meets every assumption."""
        return not self.broken


def given(text: str) -> Assumption:
    """An assumption that the caller answers for."""
    return Assumption(text, holds=True, given=True)


def count_equally(equal_weights: bool) -> Assumption:
    """The assumption that f is the plain mean of the clients' losses."""
    return Assumption(
        "clients count equally" if equal_weights else "clients do not count equally: some count more than 1/N",
        equal_weights,
    )


def at_least(name: str, value: float, limit_name: str, limit: float) -> Assumption:
    """The assumption value ≥ limit."""
    holds = value >= limit
    return Assumption(_compare(name, value, "at least" if holds else "below", limit_name, limit), holds)


def at_most(name: str, value: float, limit_name: str, limit: float) -> Assumption:
    """The assumption value ≤ limit."""
    holds = value <= limit
    return Assumption(_compare(name, value, "at most" if holds else "above", limit_name, limit), holds)


def below(name: str, value: float, limit_name: str, limit: float) -> Assumption:
    """The assumption value < limit."""
    holds = value < limit
    return Assumption(_compare(name, value, "below" if holds else "not below", limit_name, limit), holds)


def equal(name: str, value: float, limit_name: str, limit: float) -> Assumption:
    """The assumption value = limit, but for rounding."""
    holds = math.isclose(value, limit, rel_tol=1e-9)
    return Assumption(_compare(name, value, "equal to" if holds else "not", limit_name, limit), holds)


def _compare(name: str, value: float, relation: str, limit_name: str, limit: float) -> str:
    limit_text = f"{limit:.6g}"
    end = limit_text if limit_name == limit_text else f"{limit_name} = {limit_text}"
    return f"{name} = {value:.6g} is {relation} {end}"


def check_positive(**constants: float) -> None:
    """Raise ``ValueError`` unless each constant is a finite number > 0."""
    for name, value in constants.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number greater than 0, got {value}")


def check_not_negative(**constants: float) -> None:
    """Raise ``ValueError`` unless each constant is a finite number ≥ 0."""
    for name, value in constants.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite number of at least 0, got {value}")


def check_count(**constants: float) -> None:
    """Raise ``ValueError`` unless each constant is a whole number ≥ 1."""
    for name, value in constants.items():
        if not (math.isfinite(value) and value >= 1 and value == int(value)):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
