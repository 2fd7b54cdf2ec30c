"""Means over seeds and their 95 % intervals, also of differences seed by seed.

Runs of one seed share clients, data and devices.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from offbeat.metric_bounds import UNBOUNDED, Bounds

_CONFIDENCE = 0.95
_LARGEST_EXPONENT = math.log(100)

_Spread = TypeVar("_Spread", float, NDArray[np.float64])


@dataclass(frozen=True)
class Estimate:
    """A measure over the seeds."""

    mean: float
    deviation: float | None  # the sample standard deviation; None for a single seed
    half_width: float | None  # of Student's 95 % confidence interval of the mean; None for a single seed
    seeds: int
    bounds: Bounds = UNBOUNDED  # of the values

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the 95 % interval, within the bounds; None for a single seed."""
        if self.half_width is None:
            return None
        low, high = interval(np.array(self.mean), np.array(self.half_width), self.bounds)
        return float(low), float(high)

    @property
    def is_uneven(self) -> bool:
        """True if the interval is not ``mean ± half_width``."""
        half = self.half_width
        return half is not None and self.interval != (self.mean - half, self.mean + half)


def estimate(values: Iterable[float], bounds: Bounds = UNBOUNDED) -> Estimate:
    """Return the estimate from a value for each seed; NaN if one is not finite."""
    numbers = [float(value) for value in values]
    if not all(map(math.isfinite, numbers)):  # a run diverged
        return Estimate(math.nan, None, None, len(numbers), bounds)
    mean = statistics.fmean(numbers)
    if len(numbers) == 1:
        return Estimate(mean, None, None, 1, bounds)
    deviation = statistics.stdev(numbers)
    return Estimate(mean, deviation, half_width(deviation, len(numbers)), len(numbers), bounds)


def interval(
    mean: NDArray[np.float64], half: NDArray[np.float64], bounds: Bounds
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the 95 % intervals of means of values within bounds.

    They are ``mean ± half``, Student's, cut at the bounds. Where values only have a lower bound, as times and counts
    do, and ``half`` is more than half of what the mean is above it, the interval is that of the logarithm of this
    distance, by the delta method: the distance divided and multiplied by ``exp(half / distance)``. If that is over 100,
    as of two seeds, nothing is known but the bounds.
    """
    low, high = mean - half, mean + half
    least, most = bounds
    if math.isfinite(least) and math.isinf(most):
        above = mean - least
        is_wide = (2 * half > above) & (above > 0)
        exponents = np.divide(half, above, out=np.zeros_like(low), where=is_wide)
        factor = np.exp(np.where(exponents > _LARGEST_EXPONENT, np.inf, exponents))
        low, high = np.where(is_wide, least + above / factor, low), np.where(is_wide, least + above * factor, high)
    return np.maximum(low, least), np.minimum(high, most)


def half_width(deviation: _Spread, seeds: int) -> _Spread:
    """Return half the 95 % confidence interval of a mean: t · s / √n.

    s is the sample standard deviation of n ≥ 2 seeds, t the quantile of Student's distribution with n − 1 degrees of
    freedom.
    """
    return t_quantile(seeds - 1) / math.sqrt(seeds) * deviation


def t_quantile(freedom: int) -> float:
    """Return how many standard errors a 95 % interval reaches to each side."""
    return float(stdtrit(freedom, (1 + _CONFIDENCE) / 2))


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
