"""Findings: what was measured on a claim, and the verdict."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Word = Literal["supported", "not supported", "contradicted", "open"]
Evidence = Literal["paper", "theorem", "proxy", "ours"]
LEAST_SEEDS = 5  # for a test: with four pairs even a large effect may be chance


@dataclass(frozen=True)
class Effect:
    """An effect with its 95 % interval, and the effects that the claim allows.

    ``value`` is a geometric mean of ratios m / r, a mean of differences m − r, or a single measured value. If some
    runs did not reach a target it is None, and ``low`` or ``high`` is the bound that the others give.
    """

    kind: Literal["ratio", "difference", "value"]
    value: float | None
    low: float | None
    high: float | None
    allowed: tuple[float | None, float | None]  # the lowest and the highest; None: any
    text: str = ""  # effect and interval with their unit


@dataclass(frozen=True)
class Finding:
    """The measured numbers on a claim, and the verdict."""

    claim: str
    paper: str  # the paper's number or words
    ours: str  # our number with its name
    other: str  # the relation and the number on its right side
    evidence: Evidence = "proxy"
    statement: str = ""  # findings of one paper with one statement count once
    headline: bool = False  # whether the index lists its statement
    has_own_limit: bool = False  # whether its limit is a number of ours
    quantity: str = ""
    values: Mapping[str, str] = field(default_factory=dict[str, str])  # by compared algorithm; none for differences
    n: int = 0  # seeds, or independent runs
    ours_by_seed: tuple[float | None, ...] = ()  # None: never reached, diverged, or not measured
    other_by_seed: tuple[float | None, ...] = ()  # times the factor
    effect: Effect | None = None
    method: str = ""  # the test
    p: float | None = None  # two-sided, before Holm's correction
    is_for: bool = False  # whether the effect is on the claim's side
    obstacle: str = ""  # why the claim could not be tested
    processor_seconds: float | None = None  # of the compared runs; None where it was not measured
    p_holm: float | None = None  # among the tests of the paper
    verdict: Word = "open"

    @property
    def is_tested(self) -> bool:
        """Report whether there is a test without an obstacle."""
        return self.p is not None and not self.obstacle

    @property
    def distance(self) -> float | None:
        """Return how far the effect is inside the allowed range; negative outside.

        The unit is the half-width of its interval.
        """
        effect = self.effect
        if effect is None or effect.value is None or effect.low is None or effect.high is None:
            return None
        scale = math.log if effect.kind == "ratio" else float
        value, low, high = scale(effect.value), *effect.allowed
        sides = [(value - scale(low), value - scale(effect.low))] if low is not None else []
        sides += [(scale(high) - value, scale(effect.high) - value)] if high is not None else []
        return min((margin / half if half else (9.0 if margin >= 0 else -9.0) for margin, half in sides), default=None)
