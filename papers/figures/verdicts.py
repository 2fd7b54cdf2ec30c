"""Verdicts on claims, seed by seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label
from papers.figures.figure_result import Word
from papers.figures.quantities import has_diverged, least_cost_to_target, quantity
from papers.figures.sections import Claim


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    A claim ``holds`` in all seeds, ``does not hold`` in any, or ``differs`` between them. It is ``undecided`` if some
    seeds are open, because a target or a number of updates was not reached by the end, and the others agree.
    """

    claim: Claim
    word: Word
    held: int  # in how many seeds
    seeds: int
    ours: Sequence[float]  # the left side for each seed
    other: Sequence[float]  # the right side for each seed, times the factor


def verdicts(
    claims: Sequence[Claim], runs: Sequence[Run], compared: Mapping[str, Sequence[Run]] = MappingProxyType({})
) -> list[Verdict]:
    """Judge each claim by the runs of its algorithms, seed against seed.

    ``compared`` has the runs of the panels that claims compare with, by the panel's name.
    """
    groups = by_label(runs)
    others = {panel: by_label(group) for panel, group in compared.items()}
    return [_verdict(claim, groups, others[claim.than_panel] if claim.than_panel else groups) for claim in claims]


def _verdict(claim: Claim, groups: Mapping[str, Sequence[Run]], others: Mapping[str, Sequence[Run]]) -> Verdict:
    ours = _numbers(claim, groups, claim.of, claim.less)
    if claim.than is None:
        assert claim.value is not None
        right = [_Interval(claim.value, claim.value)] * len(ours)
        if claim.quantity.endswith("_to_target"):
            # Compared with a number, a run that did not reach the target in its time counts as never reaching it.
            ours = [_Interval(m.highest, m.highest) for m in ours]
    else:
        right = _numbers(claim, others, claim.than, claim.than_less)
    right = [r.times(claim.factor) for r in right]
    seeds = [_holds(claim, m, r) for m, r in zip(ours, right, strict=True)]
    return Verdict(
        claim, _word(seeds), seeds.count(True), len(seeds), [m.highest for m in ours], [r.highest for r in right]
    )


def _numbers(claim: Claim, groups: Mapping[str, Sequence[Run]], of: str, less: str | None) -> "list[_Interval]":
    """Return an algorithm's quantity for each seed, less that of ``less`` if given."""
    numbers = [_interval(claim, run) for run in groups[of]]
    if less is None:
        return numbers
    return [m.minus(_interval(claim, run)) for m, run in zip(numbers, groups[less], strict=True)]


class _Interval(NamedTuple):
    """The lowest and the highest value that a number may have."""

    lowest: float
    highest: float

    def minus(self, other: "_Interval") -> "_Interval":
        return _Interval(self.lowest - other.highest, self.highest - other.lowest)

    def times(self, factor: float) -> "_Interval":
        return _Interval(factor * self.lowest, factor * self.highest)


def _interval(claim: Claim, run: Run) -> _Interval:
    value = quantity(claim, run)
    if claim.quantity.endswith("_to_target"):
        least = least_cost_to_target(claim.quantity.removesuffix("_to_target"), run) if value == math.inf else value
        return _Interval(least, value)
    if claim.quantity == "after_updates" and math.isnan(value) and not has_diverged(run):
        return _Interval(-math.inf, math.inf)  # the run has fewer updates
    return _Interval(value, value) if math.isfinite(value) else _Interval(math.nan, math.nan)


def _holds(claim: Claim, ours: _Interval, other: _Interval) -> bool | None:
    """Return whether the claim holds; None if the intervals leave it open."""
    lowest, highest = ours.lowest - other.highest, ours.highest - other.lowest  # of m − r
    if math.isnan(lowest) or math.isnan(highest):  # a run diverged
        return False
    if claim.relation == "at most":
        lowest, highest = lowest - claim.tolerance, highest - claim.tolerance
    elif claim.relation == "at least":
        lowest, highest = -highest - claim.tolerance, -lowest - claim.tolerance
    else:
        lowest, highest = max(lowest, -highest) - claim.tolerance, max(highest, -lowest) - claim.tolerance
    return True if highest <= 0 else False if lowest > 0 else None


def _word(seeds: Sequence[bool | None]) -> Word:
    if all(seeds):
        return "holds"
    if all(held is False for held in seeds):
        return "does not hold"
    return "differs" if True in seeds and False in seeds else "undecided"
