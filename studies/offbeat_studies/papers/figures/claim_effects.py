"""Effects: a claim's two sides seed against seed, and their test."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from offbeat.report.metrics import main_measure
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label
from offbeat.statistics.hypothesis_tests import Range, TestedEffect, bounded_test, paired_t
from offbeat_studies.papers.figures.finding import LEAST_SEEDS
from offbeat_studies.papers.figures.quantities import least_cost_to_target, measure_of, quantity
from offbeat_studies.papers.figures.sections import Claim

_UNKNOWN = Range(-math.inf, math.inf)
_LEAST_SIGNS = 6  # five equal signs have p = 0.06
_ABOVE_CHANCE = 0.05  # a model that is not this much better than guessing has learnt too little


@dataclass(frozen=True)
class Group:
    """The runs of a panel, and what is known of it."""

    runs: Mapping[str, Sequence[Run]]  # by label, in the order of the seeds
    edges: Collection[str] = ()  # labels whose tuned values are at the edge of their grid

    @classmethod
    def of(cls, runs: Sequence[Run], edges: Collection[str] = ()) -> "Group":
        """Return the group of a panel's runs."""
        return cls(by_label(runs), edges)


@dataclass(frozen=True)
class ClaimEffect:
    """A claim's numbers and their test.

    A ratio's pairs, its range and its effect are logarithms.
    """

    claim: Claim
    is_ratio: bool
    ours: Sequence[float]  # the left side for each seed
    other: Sequence[float]  # the right side for each seed, times the factor
    pairs: Sequence[Range]  # left less right side, known within bounds
    allowed: Range
    tested: TestedEffect | None
    obstacle: str
    runs: Sequence[Run]  # of both sides

    @property
    def bounds(self) -> Range:
        """The bounds on the effect where some pairs are known within bounds only."""
        return mean(self.pairs)


def claim_effects(
    claims: Sequence[Claim],
    own: Group,
    compared: Mapping[str, Group] = MappingProxyType({}),
    *,
    chance: float | None = None,
) -> list[ClaimEffect]:
    """Test each claim by the runs of its algorithms, seed against seed.

    ``compared`` has the panels that claims compare with, by name; ``chance`` is the accuracy of guessing.
    """
    return [_effect(claim, own, compared[claim.than_panel] if claim.than_panel else own, chance) for claim in claims]


def _effect(claim: Claim, own: Group, other: Group, chance: float | None) -> ClaimEffect:
    left = _numbers(claim, own, claim.of, claim.less)
    if claim.than_mean is not None:
        costs = zip(*(_numbers(claim, other, label, None) for label in claim.than_mean), strict=True)
        right = [Range(*map(_harmonic_mean, zip(*seed, strict=True))) for seed in costs]
    elif claim.than is None:
        assert claim.value is not None
        right = [Range(claim.value, claim.value)] * len(left)
        if claim.quantity.endswith("_to_target"):
            # Compared with a number, a run that did not reach the target in its time counts as never reaching it.
            left = [Range(m.high, m.high) for m in left]
    else:
        right = _numbers(claim, other, claim.than, claim.than_less)
    right = [Range(claim.factor * r.low, claim.factor * r.high) for r in right]
    is_ratio = _is_ratio(claim, own)
    pairs = [minus(_log(m), _log(r)) if is_ratio else minus(m, r) for m, r in zip(left, right, strict=True)]
    allowed = {
        "at most": Range(-math.inf, claim.tolerance - claim.margin),
        "at least": Range(claim.margin - claim.tolerance, math.inf),
        "close to": Range(-claim.tolerance, claim.tolerance),
    }[claim.relation]
    sides = [(own, claim.of), (own, claim.less), (other, claim.than), (other, claim.than_less)]
    sides += [(other, label) for label in claim.than_mean or ()]
    labels = [(group, label) for group, label in sides if label is not None]
    tested, obstacle = test_pairs(pairs, allowed)
    return ClaimEffect(
        claim,
        is_ratio,
        [m.high for m in left],
        [r.high for r in right],
        pairs,
        allowed,
        tested,
        obstacle or _at_chance(labels, chance) or _at_edge(labels),
        [run for group, label in labels for run in group.runs[label]],
    )


def test_pairs(pairs: Sequence[Range], allowed: Range) -> tuple[TestedEffect | None, str]:
    """Return the test and why it does not count, if so."""
    obstacle = f"fewer than {LEAST_SEEDS} seeds" if len(pairs) < LEAST_SEEDS else ""
    if not all(pair.low == pair.high and math.isfinite(pair.low) for pair in pairs):
        tested = bounded_test(pairs, allowed)
        if tested.method == "sign" and len(pairs) < _LEAST_SIGNS:
            obstacle = obstacle or f"fewer than {_LEAST_SIGNS} seeds, where only signs are known"
        return tested, obstacle
    try:
        return paired_t([pair.low for pair in pairs], allowed), obstacle
    except ValueError:
        return None, obstacle or "all seeds give the same difference"


def _at_chance(labels: Sequence[tuple[Group, str]], chance: float | None) -> str:
    if chance is None:
        return ""
    measure = main_measure([run for group, label in labels for run in group.runs[label]])
    levels = [
        np.mean([measure.best(run.history[measure.name].astype(np.float64)) for run in group.runs[label]])
        for group, label in labels
    ]
    return f"all stay near {100 * chance:g} %, the accuracy of guessing" if max(levels) < chance + _ABOVE_CHANCE else ""


def _at_edge(labels: Sequence[tuple[Group, str]]) -> str:
    edges = dict.fromkeys(label for group, label in labels if label in group.edges)
    return f"tuned to the edge of the tried values: {', '.join(edges)}" if edges else ""


def _is_ratio(claim: Claim, group: Group) -> bool:
    """Return whether a claim is about a ratio.

    Claims with a factor and claims about costs, swings or losses are; those with a tolerance or a margin and those of
    differences are not.
    """
    if claim.less is not None or claim.tolerance or claim.margin:
        return False
    is_swing_or_cost = claim.quantity == "swing" or claim.quantity.endswith("_to_target")
    return claim.factor != 1 or is_swing_or_cost or not measure_of(claim, group.runs[claim.of]).is_share


def _numbers(claim: Claim, group: Group, of: str, less: str | None) -> list[Range]:
    """Return an algorithm's quantity for each seed, less that of ``less`` if given."""
    numbers = [_number(claim, run) for run in group.runs[of]]
    if less is None:
        return numbers
    return [minus(m, _number(claim, run)) for m, run in zip(numbers, group.runs[less], strict=True)]


def _harmonic_mean(costs: Sequence[float]) -> float:
    if 0 in costs:  # an untrained model reached the target
        return 0.0
    total = math.fsum(1 / cost for cost in costs)
    return len(costs) / total if total else math.inf


def _number(claim: Claim, run: Run) -> Range:
    value = quantity(claim, run)
    if claim.quantity.endswith("_to_target"):
        least = least_cost_to_target(claim.quantity.removesuffix("_to_target"), run) if value == math.inf else value
        return Range(least, value)
    return Range(value, value) if math.isfinite(value) else _UNKNOWN  # it diverged, or has fewer updates


def minus(left: Range, right: Range) -> Range:
    """Return the bounds on a difference; none where both sides may be infinite."""
    low, high = left.low - right.high, left.high - right.low
    return _UNKNOWN if math.isnan(low) or math.isnan(high) else Range(low, high)


def mean(ranges: Sequence[Range]) -> Range:
    """Return the bounds on a mean.

    A range without a bound on a side leaves the mean without one there, also beside a range of the other infinity.
    """
    lows, highs = zip(*ranges, strict=True)
    return Range(
        -math.inf if -math.inf in lows else math.fsum(lows) / len(lows),
        math.inf if math.inf in highs else math.fsum(highs) / len(highs),
    )


def _log(number: Range) -> Range:
    return Range(*(math.log(value) if value > 0 else -math.inf for value in number))
