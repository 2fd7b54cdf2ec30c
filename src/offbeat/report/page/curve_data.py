"""Data of the main chart: each measure over each cost, by seed and as a mean."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.client_metrics import STATISTICS, column
from offbeat.report.available_share import available_share
from offbeat.report.curves import (
    BAND,
    CostAxis,
    Curve,
    cost_axis,
    has_diverged,
    mean_curve,
    measure_title,
    seed_curve,
    who_diverged,
)
from offbeat.report.metrics import Measure, cost, measures_of
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label

_MOST_POINTS = 500  # of a curve; a chart is some 900 pixels wide
_LEAST_POINTS = 50
_MOST_NUMBERS = 800_000  # of all curves together: some 5 MB
_COSTS = ("seconds", "updates", "bytes", "versions")  # and epsilon


def curve_data(runs: Sequence[Run], target: float | None) -> dict[str, Any]:
    """Return axes, measures and curves; ``target`` is that of the main measure.

    A curve belongs to a label and an axis. ``x`` are costs, ``y`` values by measure; a mean also has ``low`` and
    ``high``. Shares are in percent.
    """
    groups = by_label(runs)
    private = [run for run in runs if spends_privacy(run)]
    axes = {over: cost_axis(over, runs) for over in _COSTS}
    if private:
        axes["epsilon"] = cost_axis("epsilon", private)
    measures = _measures(runs)
    longest = max(len(run.history["seconds"]) for run in runs)
    most = _points(len(runs), len(groups), len(axes), len(measures))
    return {
        "axes": [
            {"key": key, "name": axis.name, "title": axis.title, "hours": key == "seconds" and axis.unit == 3600.0}
            for key, axis in axes.items()
        ],
        "measures": [
            {
                "key": measure.name,
                "title": measure_title(measure),
                "share": measure.is_share,
                "target": None if place or target is None else target * (100 if measure.is_share else 1),
            }
            for place, measure in enumerate(measures)
        ],
        "seeds": [_seed(place, run, axes, measures, most) for place, run in _placed(groups)],
        "means": [
            mean
            for place, group in enumerate(groups.values())
            if len(group) > 1
            for over, axis in axes.items()
            if (mean := _mean(place, group, over, axis, measures, most))
        ],
        "available": _available(runs, axes["seconds"]),
        "band": BAND,
        "note": " ".join(filter(None, [who_diverged(runs), _thinned_note(most, longest)])),
    }


def _available(runs: Sequence[Run], axis: CostAxis) -> dict[str, Any] | None:
    found = available_share(runs, axis.unit * axis.end)
    return found and {"edges": short(found.edges / axis.unit), "shares": short(100 * found.shares)}


def _thinned_note(most: int, longest: int) -> str:
    return f"Drawn: at most {most:,} of up to {longest:,} evaluations of a run." if longest > most else ""


def spends_privacy(run: Run) -> bool:
    """Return whether the run has a finite ε."""
    return "epsilon" in run.history and math.isfinite(run.history["epsilon"][-1])


def _placed(groups: dict[str, list[Run]]) -> Iterator[tuple[int, Run]]:
    for place, group in enumerate(groups.values()):
        for run in group:
            yield place, run


def _measures(runs: Sequence[Run]) -> list[Measure]:
    """Return the measures of any run: of the test set, then over clients."""
    tested = list(dict.fromkeys(measure for run in runs for measure in measures_of(run)))
    over_clients = [
        Measure(column(measure.name, statistic), measure.higher_is_better, measure.is_share, measure.bounds)
        for measure in tested
        for statistic in STATISTICS
    ]
    return [*tested, *(one for one in over_clients if any(one.name in run.history for run in runs))]


def _points(runs: int, labels: int, axes: int, measures: int) -> int:
    numbers = runs * (axes + measures) + labels * axes * (1 + 3 * measures)  # of one point of every curve
    return max(_LEAST_POINTS, min(_MOST_POINTS, _MOST_NUMBERS // numbers))


def _seed(place: int, run: Run, axes: dict[str, CostAxis], measures: Sequence[Measure], most: int) -> dict[str, Any]:
    chosen = thinned(len(run.history["seconds"]), most)
    known = [over for over in axes if over != "epsilon" or spends_privacy(run)]
    return {
        "label": place,
        "seed": run.seed,
        "diverged": has_diverged(run),
        "x": {over: short(cost(over, run)[chosen] / axes[over].unit) for over in known},
        "y": {one.name: short(_curve(run, one, "seconds", 1.0)[1][chosen]) for one in measures},
    }


def _mean(
    place: int, group: Sequence[Run], over: str, axis: CostAxis, measures: Sequence[Measure], most: int
) -> dict[str, Any] | None:
    if over == "epsilon" and not all(map(spends_privacy, group)):
        return None
    curves = {one.name: mean_curve([_curve(run, one, over, axis.unit) for run in group], one) for one in measures}
    xs = curves[measures[0].name].xs
    chosen = thinned(len(xs), most)
    return {
        "label": place,
        "axis": over,
        "x": short(xs[chosen]),
        "y": {name: short(curve.mean[chosen]) for name, curve in curves.items()},
        "low": {name: short(curve.low[chosen]) for name, curve in curves.items()},
        "high": {name: short(curve.high[chosen]) for name, curve in curves.items()},
    }


def _curve(run: Run, measure: Measure, over: str, unit: float) -> Curve:
    if measure.name in run.history:
        return seed_curve(run, measure, over, unit)
    xs = cost(over, run) / unit  # runs of a merged report may have other measures
    return xs, np.full(len(xs), np.nan)


_DIGITS = 5  # significant; a screen shows three or four


def thinned(number: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` of ``number`` indices, with both ends.

    One half is spread evenly. The other half is spread evenly over the logarithm, for logarithmic axes.
    """
    if number <= most:
        return np.arange(number)
    even = np.linspace(0, number - 1, most // 2)
    early = np.geomspace(1, number, most - most // 2) - 1
    return np.unique(np.concatenate([even, early]).round().astype(np.int64))


def short(values: Iterable[float]) -> list[float | int | None]:
    """Return rounded values for JSON; None for those that are not finite."""
    return [_short(value) for value in np.asarray(values, dtype=np.float64).tolist()]


def _short(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
