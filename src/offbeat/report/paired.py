"""Comparisons of two algorithms seed by seed.

Runs of one seed share clients, data and devices.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from offbeat.report.confidence_interval import estimate


@dataclass(frozen=True)
class Paired:
    """The mean of a difference or a ratio over the seeds that both algorithms ran."""

    mean: float
    low: float | None  # of the 95 % confidence interval; None for a single seed
    high: float | None
    seeds: int

    def is_clear(self, nothing: float) -> bool:
        """Return whether the interval excludes the value of no difference."""
        return self.low is not None and self.high is not None and not self.low <= nothing <= self.high


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Paired | None:
    """Return the mean of ours − theirs.

    None without common seeds, or if a value is not finite.
    """
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not differences or not all(map(math.isfinite, differences)):
        return None
    mean = estimate(differences)
    half = mean.half_width
    return Paired(
        mean.mean, None if half is None else mean.mean - half, None if half is None else mean.mean + half, mean.seeds
    )


def ratio(ours: Mapping[int, float | None], theirs: Mapping[int, float | None]) -> Paired | None:
    """Return the geometric mean of ours / theirs.

    The interval is Student's for the logarithms. None without common seeds, or if a value is missing or not positive:
    the other seeds would flatter.
    """
    logs = [{seed: math.log(value) if value else math.nan for seed, value in one.items()} for one in (ours, theirs)]
    found = difference(*logs)
    if found is None:
        return None
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Paired(math.exp(found.mean), low, high, found.seeds)
