"""Comparison of all pairs of algorithms, with simultaneous intervals.

The best of several algorithms is picked after a look at the results. So the intervals are made for all pairs at once:
with a probability of 95 % every one of them holds, whichever pairs a reader picks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from offbeat.statistics.hypothesis_tests import varies

_MISSED = 0.05  # the probability that some interval is wrong
_POWER = 0.8  # with which more seeds are to separate a pair
_LEAST_FOR_FLIPS = 7  # seeds: of the signs of fewer, only the most extreme is less likely than 5 %
_MOST_EXACT = 12  # seeds whose signs are all tried
_RANDOM_FLIPS = 4096  # of more seeds
_MOST_SEEDS = 100  # that are worth a guess


class Observed(NamedTuple):
    """A number of one seed, or the bounds of one that is not known exactly.

    ``rounding`` is the standard deviation of what it was rounded by, such as a time to the next evaluation. Rounded
    differences of a few seeds are often equal by chance, and vary by the rounding at least.
    """

    low: float
    high: float
    rounding: float = 0.0


Values = Mapping[str, Mapping[int, Observed]]
"""By algorithm and seed."""


@dataclass(frozen=True)
class Pair:
    """The mean difference, ``first`` − ``second``, over the seeds of both.

    Attributes:
        mean: None where some differences are known within bounds only.
        low, high: The ends of the simultaneous 95 % interval; infinite where nothing is known.
        deviation: The sample standard deviation, at least the rounding's; None without ``mean``, or for one seed.
        seeds: How many both have.
    """

    first: str
    second: str
    mean: float | None
    low: float
    high: float
    deviation: float | None
    seeds: int

    @property
    def is_separated(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def reversed(self) -> "Pair":
        """Return ``second`` − ``first``."""
        mean = None if self.mean is None else -self.mean
        return Pair(self.second, self.first, mean, -self.high, -self.low, self.deviation, self.seeds)


def all_pairs(values: Values) -> list[Pair]:
    """Return every pair of algorithms with a common seed, in the order of ``values``.

    With seven seeds or more, which all algorithms share, and no bounds, the intervals are those of max-t: they reach as
    many standard errors as the largest |t| of all pairs in 95 % of the ways to flip the seeds' signs. Else they are
    Student's t with Bonferroni's correction, which takes differences to be normal. Where differences are known within
    bounds, the lower end is that of the lower bounds, the upper end that of the upper ones. No deviation is taken to be
    less than that of the rounding.
    """
    both = [
        (first, second, differences)
        for first, second in combinations(values, 2)
        if (
            differences := [
                _minus(own, values[second][seed]) for seed, own in values[first].items() if seed in values[second]
            ]
        )
    ]
    flips = _max_t(values, [differences for *_, differences in both])
    return [_pair(first, second, differences, len(both), flips) for first, second, differences in both]


def seeds_needed(pair: Pair, pairs: int) -> int | None:
    """Return a guess at how many seeds would separate a pair, one of ``pairs``.

    They would with a probability of 80 %, if the mean and the deviation stayed as they are. None: over 100, or unknown.
    """
    if pair.mean is None or not pair.deviation:
        return None
    for seeds in range(2, _MOST_SEEDS + 1):
        errors = _critical(seeds, pairs) + float(stdtrit(seeds - 1, _POWER))
        if abs(pair.mean) >= errors * pair.deviation / math.sqrt(seeds):
            return seeds
    return None


def _minus(first: Observed, second: Observed) -> Observed:
    return Observed(first.low - second.high, first.high - second.low, math.hypot(first.rounding, second.rounding))


def _critical(seeds: int, pairs: int) -> float:
    """Return how many standard errors an interval reaches to each side."""
    return float(stdtrit(seeds - 1, 1 - _MISSED / (2 * pairs)))


def _pair(first: str, second: str, differences: Sequence[Observed], pairs: int, flips: float | None) -> Pair:
    seeds, rounding = len(differences), _rounding(differences)
    lows, highs = ([one.low for one in differences], [one.high for one in differences])
    mean = deviation = None
    if lows == highs and all(map(math.isfinite, lows)):
        mean = float(np.mean(lows))
        deviation = _deviation(lows, rounding) if seeds > 1 else None
    low = _lower_end(lows, rounding, pairs, flips)
    high = -_lower_end([-end for end in highs], rounding, pairs, flips)
    return Pair(first, second, mean, low, high, deviation, seeds)


def _rounding(differences: Sequence[Observed]) -> float:
    return math.sqrt(sum(one.rounding**2 for one in differences) / len(differences))


def _deviation(values: Sequence[float], rounding: float) -> float:
    return max(float(np.std(values, ddof=1)), rounding)


def _lower_end(bounds: Sequence[float], rounding: float, pairs: int, flips: float | None) -> float:
    """Return the lower end of a mean's interval, from lower bounds of its values."""
    seeds = len(bounds)
    if not all(map(math.isfinite, bounds)):
        return -math.inf
    if not rounding and not varies(bounds):
        # As of runs that are equal: their signs are all that they tell.
        is_sure = bounds[0] == 0 or 2 * pairs * 0.5**seeds <= _MISSED
        return bounds[0] if is_sure else -math.inf
    if seeds == 1:
        return -math.inf
    critical = _critical(seeds, pairs) if flips is None else flips
    return float(np.mean(bounds) - critical * _deviation(bounds, rounding) / math.sqrt(seeds))


def _max_t(values: Values, differences: Sequence[Sequence[Observed]]) -> float | None:
    """Return the 95 % quantile of the largest |t| under flipped signs.

    None if it cannot be used. The signs as they are count as one more way, so the quantile is never too low.
    """
    seeds = {tuple(sorted(own)) for own in values.values()}
    number = len(next(iter(seeds), ()))
    is_exact = all(one.low == one.high and math.isfinite(one.low) for own in differences for one in own)
    if len(seeds) != 1 or number < _LEAST_FOR_FLIPS or not is_exact:
        return None
    varying = [own for own in differences if _rounding(own) or varies([one.low for one in own])]
    if not varying:
        return None
    table = np.array([[one.low for one in own] for own in varying])
    table -= table.mean(axis=1, keepdims=True)
    least = np.maximum(np.array([_rounding(own) for own in varying]) ** 2, 1e-300)
    largest = np.sort(np.max(np.abs(_t_values(table, _signs(number), least)), axis=0))
    return float(largest[math.ceil((1 - _MISSED) * (len(largest) + 1)) - 1])


def _signs(seeds: int) -> NDArray[np.float64]:
    """Return ways to flip the seeds' signs, ``(flips, seeds)``."""
    if seeds <= _MOST_EXACT:
        numbers = np.arange(2 ** (seeds - 1))
        return 1.0 - 2.0 * ((numbers[:, None] >> np.arange(seeds)) & 1)
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(_RANDOM_FLIPS, seeds))


def _t_values(
    table: NDArray[np.float64], signs: NDArray[np.float64], least: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return t, ``(pairs, flips)``, of differences ``(pairs, seeds)``.

    No variance is below that of its pair in ``least``, ``(pairs,)``.
    """
    seeds = table.shape[1]
    means = table @ signs.T / seeds
    squares = (table**2).sum(axis=1, keepdims=True)
    variances = np.maximum((squares - seeds * means**2) / (seeds - 1), least[:, None])
    return means / np.sqrt(variances / seeds)
