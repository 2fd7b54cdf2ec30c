"""Curves of a measure over a cost: of each seed, and their mean."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offbeat.report.metrics import Measure, cost
from offbeat.runs.directory import Run
from offbeat.statistics.estimates import half_width

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class MeanCurve:
    """The mean of the seeds, with the 95 % confidence interval of the mean."""

    xs: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]  # NaN for one seed
    high: NDArray[np.float64]


def seed_curve(run: Run, measure: Measure, over: str, unit: float) -> Curve:
    """Return the costs in a unit, and the values, in percent if they are shares."""
    values = run.history[measure.name].astype(np.float64)
    scale = 100.0 if measure.is_share else 1.0
    # Infinity is not drawn and must not stretch the axis.
    return cost(over, run) / unit, np.where(np.isfinite(values), scale * values, np.nan)


def mean_curve(curves: Sequence[Curve], measure: Measure) -> MeanCurve:
    """Return the mean of curves, where all of them have begun and none has ended.

    Curves that share no range, such as single points, count with their nearest values everywhere.
    """
    xs, seeds = together(curves)
    mean = seeds.mean(axis=0)
    if len(curves) == 1:
        return MeanCurve(xs, mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    half = half_width(seeds.std(axis=0, ddof=1), len(curves))
    low, high = mean - half, mean + half
    return MeanCurve(xs, mean, *((np.maximum(low, 0.0), np.minimum(high, 100.0)) if measure.is_share else (low, high)))


def together(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return common sample points of curves, ``(n,)``, and values, ``(curves, n)``."""
    xs = np.unique(np.concatenate([x for x, _ in curves]))
    known = (xs >= max(x[0] for x, _ in curves)) & (xs <= min(x[-1] for x, _ in curves))
    if known.any():
        xs = xs[known]
    return xs, np.stack([np.interp(xs, x, y) for x, y in curves])
