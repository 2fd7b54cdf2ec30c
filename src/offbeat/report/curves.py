"""Curves of a measure over a cost: axes, seeds and their mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offbeat import units
from offbeat.client_metrics import CLIENT, STATISTICS, metric_of
from offbeat.report.metrics import Measure, cost
from offbeat.runs.directory import Run
from offbeat.statistics.estimates import half_width, interval
from offbeat.training.trainer_names import TRAINING_LOSS

_Unit = Callable[[float], tuple[float, str]]
# By cost: its name in a title, the label of its axis, the function that returns its unit.
_AXES: dict[str, tuple[str, str, _Unit | None]] = {
    "seconds": ("virtual time", "virtual time ({unit})", units.time_unit),
    "updates": ("visits", "visits of clients", None),
    "bytes": ("bytes", "sent to and by all clients ({unit})", units.size_unit),
    "versions": ("versions", "version of the model", None),
    "epsilon": ("privacy spent", "ε of the client with the most participations (zero-out)", None),
}
STATISTIC_TITLES: dict[str, str] = dict(
    zip(STATISTICS, ("by examples", "mean", "10th percentile", "median", "90th percentile", "worst tenth"), strict=True)
)


@dataclass(frozen=True)
class CostAxis:
    """The axis of a cost, for several runs."""

    name: str
    title: str
    unit: float  # by which a run's cost is divided
    end: float  # in this unit


def cost_axis(over: str, runs: Sequence[Run]) -> CostAxis:
    """Return the axis of a cost: seconds, updates, bytes, versions, epsilon."""
    name, title, unit_of = _AXES[over]
    end = max(float(cost(over, run).max()) for run in runs)
    unit, unit_name = unit_of(end) if unit_of else (1.0, "")
    return CostAxis(name, title.format(unit=unit_name), unit, end / unit)


def measure_title(measure: Measure) -> str:
    """Return the title of a measure: test, training, or on clients."""
    if measure.name == TRAINING_LOSS:
        return "training loss"
    if measure.name.startswith(CLIENT):
        metric = metric_of(measure.name)
        statistic = measure.name.removeprefix(f"{CLIENT}{metric}").removeprefix("_")
        return f"{metric.replace('_', ' ')} on clients, {STATISTIC_TITLES[statistic or STATISTICS[0]]}"
    return f"test {measure.title}"


BAND = 4  # seeds; of fewer, each is drawn, and no interval
_DIVERGED = 10.0
_NAMED = 3  # runs

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class MeanCurve:
    """The mean of the seeds, with the 95 % confidence interval of the mean."""

    xs: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]  # NaN for fewer than BAND seeds
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
    if len(curves) < BAND:
        return MeanCurve(xs, mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    half = half_width(seeds.std(axis=0, ddof=1), len(curves))
    scale = 100.0 if measure.is_share else 1.0
    least, most = measure.bounds
    return MeanCurve(xs, mean, *interval(mean, half, (scale * least, scale * most)))


def has_diverged(run: Run) -> bool:
    """Return whether a loss was not finite, or the last one ten times the first."""
    loss = run.history["loss"].astype(np.float64)
    return not np.isfinite(loss).all() or bool(len(loss) and loss[-1] > _DIVERGED * loss[0] > 0)


def who_diverged(runs: Sequence[Run]) -> str:
    """Return a sentence that names runs which must not set a chart's range, or "".

    While all have diverged, all are seen.
    """
    diverged = [run for run in runs if has_diverged(run)]
    if not diverged or len(diverged) == len(runs):
        return ""
    names = "; ".join(f"{run.label}, seed {run.seed}" for run in diverged[:_NAMED])
    more = f" and {len(diverged) - _NAMED} more" if len(diverged) > _NAMED else ""
    return f"Diverged, not in the range: {names}{more}."


def together(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return common sample points of curves, ``(n,)``, and values, ``(curves, n)``."""
    xs = np.unique(np.concatenate([x for x, _ in curves]))
    known = (xs >= max(x[0] for x, _ in curves)) & (xs <= min(x[-1] for x, _ in curves))
    if known.any():
        xs = xs[known]
    return xs, np.stack([np.interp(xs, x, y) for x, y in curves])
