"""Whether a claim holds, seed by seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from offbeat.experiments.run_directory import Run
from offbeat.experiments.run_settings import by_label
from offbeat.reproduction.outcome import Word
from offbeat.reproduction.quantities import quantity
from offbeat.reproduction.sections import Claim


@dataclass(frozen=True)
class Verdict:
    """What came of a claim.

    Attributes:
        claim: The claim.
        word: ``holds`` in all seeds, ``does not hold`` in none, or ``differs`` between them.
        held: In how many seeds it holds.
        seeds: Of how many.
        ours: Its quantity, of the claim's algorithm, for each seed.
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
    return [
        _verdict(
            claim,
            groups[claim.of],
            None if claim.than is None else (others[claim.than_panel] if claim.than_panel else groups)[claim.than],
        )
        for claim in claims
    ]


def _verdict(claim: Claim, of: Sequence[Run], than: Sequence[Run] | None) -> Verdict:
    ours = [quantity(claim, run) for run in of]
    if than is None:
        assert claim.value is not None
        others = [claim.value * claim.factor] * len(of)
    else:
        others = [claim.factor * quantity(claim, run) for run in than]
    held = sum(_holds(claim, m, r) for m, r in zip(ours, others, strict=True))
    word: Word = "holds" if held == len(of) else "does not hold" if not held else "differs"
    return Verdict(claim, word, held, len(of), ours, others)


def _holds(claim: Claim, ours: float, other: float) -> bool:
    if math.isnan(ours) or math.isnan(other):  # a run diverged
        return False
    if claim.relation == "at most":
        # Who never reaches the target is no better than another who does not.
        return math.isfinite(ours) and ours <= other + claim.tolerance
    if claim.relation == "at least":
        return math.isfinite(other) and ours >= other - claim.tolerance
    return abs(ours - other) <= claim.tolerance
