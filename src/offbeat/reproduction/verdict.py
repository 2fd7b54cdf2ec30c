"""Whether a claim holds, seed by seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from offbeat.reproduction.outcome import Word
from offbeat.reproduction.quantities import has_diverged, least_cost_to_target, quantity
from offbeat.reproduction.sections import Claim
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label


@dataclass(frozen=True)
class Verdict:
    """What came of a claim.

    Attributes:
        claim: The claim.
        word: ``holds`` in all seeds, ``does not hold`` in none, ``differs`` between them; ``undecided`` if it is open
            in some, because a target or a number of updates was not reached by the end, and the others agree.
        held: In how many seeds it holds.
        seeds: Of how many.
        ours: Its quantity, of the claim's algorithm, for each seed; a difference if the claim is about one.
        other: The same of the other one, or the number, times the factor.
    """

    claim: Claim
    word: Word
    held: int
    seeds: int
    ours: Sequence[float]
    other: Sequence[float]


def verdicts(
    claims: Sequence[Claim], runs: Sequence[Run], beside: Mapping[str, Sequence[Run]] = MappingProxyType({})
) -> list[Verdict]:
    """Judge each claim by the runs of its algorithms, seed against seed.

    Args:
        claims: The claims.
        runs: The figure's.
        beside: Those of the panels that it is compared with, by the panels' names.
    """
    groups = by_label(runs)
    others = {panel: by_label(its) for panel, its in beside.items()}
    return [_verdict(claim, groups, others[claim.than_panel] if claim.than_panel else groups) for claim in claims]


def _verdict(claim: Claim, groups: Mapping[str, Sequence[Run]], others: Mapping[str, Sequence[Run]]) -> Verdict:
    ours = _numbers(claim, groups, claim.of, claim.less)
    if claim.than is None:
        assert claim.value is not None
        right = [_Between(claim.value, claim.value)] * len(ours)
        if claim.quantity.endswith("_to_target"):
            # Against a number, who does not reach the target in the time that it has never does.
            ours = [_Between(m.highest, m.highest) for m in ours]
    else:
        right = _numbers(claim, others, claim.than, claim.than_less)
    right = [r.times(claim.factor) for r in right]
    seeds = [_holds(claim, m, r) for m, r in zip(ours, right, strict=True)]
    return Verdict(
        claim, _word(seeds), seeds.count(True), len(seeds), [m.highest for m in ours], [r.highest for r in right]
    )


def _numbers(claim: Claim, groups: Mapping[str, Sequence[Run]], of: str, less: str | None) -> "list[_Between]":
    """Return an algorithm's quantity for each seed, less that of another one if it is given."""
    numbers = [_between(claim, run) for run in groups[of]]
    if less is None:
        return numbers
    return [m.minus(_between(claim, run)) for m, run in zip(numbers, groups[less], strict=True)]


class _Between(NamedTuple):
    """What is known of a number: the lowest and the highest that it may be."""

    lowest: float
    highest: float

    def minus(self, other: "_Between") -> "_Between":
        return _Between(self.lowest - other.highest, self.highest - other.lowest)

    def times(self, factor: float) -> "_Between":
        return _Between(factor * self.lowest, factor * self.highest)


def _between(claim: Claim, run: Run) -> _Between:
    value = quantity(claim, run)
    if claim.quantity.endswith("_to_target"):
        least = least_cost_to_target(claim.quantity.removesuffix("_to_target"), run) if value == math.inf else value
        return _Between(least, value)
    if claim.quantity == "after_updates" and math.isnan(value) and not has_diverged(run):
        return _Between(-math.inf, math.inf)  # it has fewer
    return _Between(value, value) if math.isfinite(value) else _Between(math.nan, math.nan)


def _holds(claim: Claim, ours: _Between, other: _Between) -> bool | None:
    """Return whether the claim holds; None if what is known does not tell."""
    least, most = ours.lowest - other.highest, ours.highest - other.lowest  # the bounds of m - r
    if math.isnan(least) or math.isnan(most):  # a run diverged
        return False
    if claim.relation == "at most":
        least, most = least - claim.tolerance, most - claim.tolerance
    elif claim.relation == "at least":
        least, most = -most - claim.tolerance, -least - claim.tolerance
    else:
        least, most = max(least, -most) - claim.tolerance, max(most, -least) - claim.tolerance
    return True if most <= 0 else False if least > 0 else None


def _word(seeds: Sequence[bool | None]) -> Word:
    if all(seeds):
        return "holds"
    if all(held is False for held in seeds):
        return "does not hold"
    return "differs" if True in seeds and False in seeds else "undecided"
