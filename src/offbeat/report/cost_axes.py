"""Axes of what a run has cost, and titles of measures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offbeat import units
from offbeat.client_metrics import CLIENT, STATISTICS, metric_of
from offbeat.report.metrics import Measure, cost
from offbeat.runs.directory import Run
from offbeat.training.metric_names import TRAINING_LOSS

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
