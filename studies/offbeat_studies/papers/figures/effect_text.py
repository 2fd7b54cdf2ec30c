"""Effects as numbers with their unit, and in words."""

import math
from collections.abc import Callable, Sequence

from offbeat.report.metrics import Measure
from offbeat_studies.papers.figures.claim_effects import ClaimEffect
from offbeat_studies.papers.figures.finding import Effect

_Numbers = tuple[float | None, float | None, float | None]
"""An effect, and the ends of its interval; without an effect, the bounds on it."""


def effect_of(measured: ClaimEffect, measure: Measure) -> Effect:
    """Return a claim's effect, m / r or m − r.

    If a target was not always reached it has bounds instead of a value.
    """
    value, low, high = _numbers(measured)
    lowest, highest = (bound if math.isfinite(bound) else None for bound in measured.allowed)
    if not measured.is_ratio:
        scale, unit, least = (100, "points", 1) if measure.is_share else (1, "", 3)
        digits = _digits([scale * number for number in (value, low, high) if number is not None], least)
        words = _words((value, low, high), lambda x: f"{scale * x:+.{digits}f}")
        return Effect("difference", value, low, high, (lowest, highest), f"{words} {unit}".strip())

    def ratio(log: float | None) -> float | None:
        """Return m / r; the pairs are of m and factor · r."""
        return None if log is None else _rounded(measured.claim.factor * math.exp(log))

    numbers = (ratio(value), ratio(low), ratio(high))
    return Effect("ratio", *numbers, (ratio(lowest), ratio(highest)), ratio_words(numbers))


def ratio_words(numbers: _Numbers) -> str:
    """Write a ratio with its interval, or with the bounds that are known."""
    digits = _digits([number for number in numbers if number is not None], 2)
    words = _words(numbers, lambda x: f"× {x:.3g}" if x >= 10 else f"× {x:.{digits}f}")
    return words.replace("[× ", "[").replace(", × ", ", ")


def _numbers(measured: ClaimEffect) -> _Numbers:
    tested = measured.tested
    if tested is not None and tested.effect is not None:
        return _rounded(tested.effect), _rounded(tested.low), _rounded(tested.high)
    low, high = measured.bounds
    if low == high:
        return (_rounded(low) if math.isfinite(low) else None), None, None
    return None, _rounded(low) if math.isfinite(low) else None, _rounded(high) if math.isfinite(high) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _digits(numbers: Sequence[float], least: int) -> int:
    """Return the decimal places that tell an effect from the ends of its interval."""
    gaps = [abs(number - numbers[0]) for number in numbers[1:] if number != numbers[0]]
    return max([least, *(-math.floor(math.log10(gap)) for gap in gaps)])


def _words(numbers: _Numbers, write: Callable[[float], str]) -> str:
    """Write an effect with its interval, or with the bounds that are known."""
    value, low, high = (None if number is None else write(number) for number in numbers)
    if value is not None:
        return value if low is None or high is None else f"{value} [{low}, {high}]"
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"at most {high}" if high is not None else f"at least {low}" if low is not None else ""
