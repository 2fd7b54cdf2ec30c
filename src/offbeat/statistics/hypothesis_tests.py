"""Tests of effects that are measured once per seed, and Holm's method."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from scipy.special import bdtrc, stdtr

from offbeat.statistics.estimates import estimate, t_quantile

_ROUNDING = 1e-12  # of differences that are equal, relative to the largest


class Range(NamedTuple):
    """All numbers from ``low`` to ``high``; either may be infinite."""

    low: float
    high: float

    def contains(self, other: "Range") -> bool:
        """Return whether all numbers of another range are in this one."""
        return self.low <= other.low and other.high <= self.high


@dataclass(frozen=True)
class TestedEffect:
    """An effect and the two p-values of a claim about it.

    Attributes:
        method: The test.
        effect: The mean of the differences; None where some are known within bounds only.
        low, high: The effect's 95 % interval; None where the test has none.
        p_for: The p-value of the hypothesis that the effect is outside the allowed range; small speaks for the claim.
        p_against: The p-value of the hypothesis that it is inside; small speaks against the claim.
    """

    method: str
    effect: float | None
    low: float | None
    high: float | None
    p_for: float
    p_against: float

    @property
    def p(self) -> float:
        """The two-sided p-value: twice the smaller of the two, at most 1."""
        return min(1.0, 2 * min(self.p_for, self.p_against))

    @property
    def is_for(self) -> bool:
        """Report whether the effect is on the claim's side."""
        return self.p_for < self.p_against


def paired_t(differences: Sequence[float], allowed: Range) -> TestedEffect:
    """Test the mean of differences, one per seed, with Student's t.

    With two bounds it is the test of equivalence by two one-sided tests (TOST).

    Raises:
        ValueError: There are fewer than two differences, or all are equal.
    """
    found = estimate(differences)
    if found.deviation is None or not varies(differences):
        raise ValueError("the differences must vary")
    error = found.deviation / math.sqrt(found.seeds)
    return replace(t_test(found.mean, error, found.seeds - 1, allowed), method="paired t")


def bounded_test(pairs: Sequence[Range], allowed: Range) -> TestedEffect:
    """Test differences by bounds, where not all are known exactly.

    A run that did not reach its target gives a difference with a bound on one side only. Each hypothesis is rejected if
    Student's t rejects it for the mean of those bounds that agree best with it: then it is wrong for the differences
    too. Where bounds are infinite for some pair, or equal for all, it takes the sign test instead.
    """
    lows, highs = (
        side if all(map(math.isfinite, side)) and varies(side) else None for side in zip(*pairs, strict=True)
    )
    if lows is None and highs is None:
        return sign_test(pairs, allowed)
    at_least, at_most = Range(allowed.low, math.inf), Range(-math.inf, allowed.high)

    def one_sided(bounds: Sequence[float] | None, side: Range) -> TestedEffect:
        if side == Range(-math.inf, math.inf):
            return TestedEffect("certain", None, None, None, 0.0, 1.0)
        return sign_test(pairs, side) if bounds is None else paired_t(bounds, side)

    return TestedEffect(
        "paired t of bounds",
        None,
        None,
        None,
        max(one_sided(lows, at_least).p_for, one_sided(highs, at_most).p_for),
        min(one_sided(highs, at_least).p_against, one_sided(lows, at_most).p_against),
    )


def varies(values: Sequence[float]) -> bool:
    """Return whether values differ by more than rounding."""
    return max(values) - min(values) > _ROUNDING * max(map(abs, values))


def t_test(mean: float, error: float, freedom: int, allowed: Range) -> TestedEffect:
    """Test a mean by its standard error, which has ``freedom`` degrees of freedom.

    With an error of 0 the mean is exact.
    """
    if error == 0:
        is_inside = allowed.low <= mean <= allowed.high
        return TestedEffect("exact", mean, mean, mean, float(not is_inside), float(is_inside))
    # For each finite bound: how far the mean is inside it, in standard errors.
    margins = [(mean - allowed.low) / error] if math.isfinite(allowed.low) else []
    margins += [(allowed.high - mean) / error] if math.isfinite(allowed.high) else []
    half_width = error * t_quantile(freedom)
    return TestedEffect(
        "t",
        mean,
        mean - half_width,
        mean + half_width,
        max(float(stdtr(freedom, -margin)) for margin in margins),
        min(float(stdtr(freedom, margin)) for margin in margins),
    )


def sign_test(pairs: Sequence[Range], allowed: Range) -> TestedEffect:
    """Test differences of which some are only known to lie between two bounds.

    A run that did not reach its target gives such a difference. A pair counts for the claim if its bounds lie in the
    allowed range, against it if they lie outside, and otherwise for neither. Pairs below the range and pairs above it
    are counted apart, since a median inside allows up to half of all pairs on each side.
    """
    inside = sum(allowed.contains(pair) for pair in pairs)
    below, above = sum(pair.high < allowed.low for pair in pairs), sum(pair.low > allowed.high for pair in pairs)
    p_for, p_against = (_at_least(number, len(pairs)) for number in (inside, max(below, above)))
    return TestedEffect("sign", None, None, None, p_for, p_against)


def _at_least(successes: int, trials: int) -> float:
    """Return the probability of at least so many successes, each with probability ½."""
    return float(bdtrc(successes - 1, trials, 0.5)) if successes else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method, in the same order.

    The k-th smallest of m p-values is multiplied by m − k + 1 and is at most 1; then each is raised to the largest of
    those before it. If all hypotheses with an adjusted p-value of 0.05 or less are rejected, the probability that any
    of these rejections is wrong is at most 5 %.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted
