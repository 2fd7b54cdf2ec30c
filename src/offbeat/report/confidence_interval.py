"""Mean and 95 % confidence interval of a measure over seeds."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

_CONFIDENCE = 0.95

_Spread = TypeVar("_Spread", float, NDArray[np.float64])


@dataclass(frozen=True)
class Estimate:
    """A measure over the seeds."""

    mean: float
    deviation: float | None  # the sample standard deviation; None for a single seed
    half_width: float | None  # of the 95 % confidence interval of the mean; None for a single seed
    seeds: int


def estimate(values: Iterable[float]) -> Estimate:
    """Return the estimate from a value for each seed; NaN if one is not finite."""
    numbers = [float(value) for value in values]
    if not all(map(math.isfinite, numbers)):  # a run diverged
        return Estimate(math.nan, None, None, len(numbers))
    mean = statistics.fmean(numbers)
    if len(numbers) == 1:
        return Estimate(mean, None, None, 1)
    deviation = statistics.stdev(numbers)
    return Estimate(mean, deviation, half_width(deviation, len(numbers)), len(numbers))


def half_width(deviation: _Spread, seeds: int) -> _Spread:
    """Return half the 95 % confidence interval of a mean: t · s / √n.

    s is the sample standard deviation of n ≥ 2 seeds, t the quantile of Student's distribution with n − 1 degrees of
    freedom.
    """
    return float(stdtrit(seeds - 1, (1 + _CONFIDENCE) / 2)) / math.sqrt(seeds) * deviation
