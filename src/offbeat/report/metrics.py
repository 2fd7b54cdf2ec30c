"""Measures that reports compare: metrics, loss, and the target."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import is_number

from offbeat import units
from offbeat.metric_bounds import AMOUNT, KNOWN, SHARE, UNBOUNDED, Bounds
from offbeat.runs.directory import Run, read_bounds
from offbeat.statistics import estimates
from offbeat.training.trainer_names import TRAINING_LOSS

LOSS = "loss"
# The cost of a run: the columns of its history that are added up.
_COSTS = {
    "seconds": ("seconds",),
    "updates": ("counted", "unused", "lost"),
    "versions": ("version",),
    "bytes": ("bytes_down", "bytes_up"),
    "bytes_up": ("bytes_up",),
    "epsilon": ("epsilon",),
}
_POSITIVE = ("cross_entropy", "mse", "bce", "nll_loss")  # losses
_SHARES = ("accuracy",)  # 0 … 1, written in percent


@dataclass(frozen=True)
class Measure:
    """A column of the history that measures the model."""

    name: str
    higher_is_better: bool  # known for the main measure and the loss, assumed for others
    is_share: bool  # 0 … 1, written in percent
    bounds: Bounds = field(default=UNBOUNDED, compare=False)  # of the values, where they are known

    def __post_init__(self) -> None:
        """Bound shares."""
        if self.is_share:
            object.__setattr__(self, "bounds", SHARE)

    @property
    def title(self) -> str:
        """The name without underscores."""
        return self.name.replace("_", " ")

    def write(self, value: float, half_width: float | None = None) -> str:
        """Write a value as ``83.1 %`` or ``0.453 ± 0.012``.

        An interval that is cut off at a bound is written with its ends: ``98.9 % (95.2 to 100 %)``.
        """
        if half_width:
            low, high = self.interval(value, half_width)
            if (low, high) != (value - half_width, value + half_width):
                if self.is_share:
                    return f"{units.percent(value)} ({100 * low:.3g} to {100 * high:.3g} %)"
                most = "∞" if math.isinf(high) else units.number(high)
                return f"{units.number(value)} ({units.number(low)} to {most})"
        return (units.percent if self.is_share else units.number)(value, half_width)

    def write_difference(self, value: float, half_width: float | None = None) -> str:
        """Write a difference, that of shares in points: ``+2.9 ± 1.1 points``."""
        text = units.number(value, half_width)
        if self.is_share:
            text = units.percent(value, half_width).replace("%", "points")
        return text if value < 0 else f"+{text}"

    def interval(self, value: float, half_width: float) -> tuple[float, float]:
        """Return the ends of an interval, within the bounds."""
        low, high = estimates.interval(np.array(value), np.array(half_width), self.bounds)
        return float(low), float(high)

    def at(self, target: float) -> str:
        """Write a target without padding its digits: ``80 %`` or ``loss 0.5``."""
        return units.level(target) if self.is_share else f"{self.title} {target:.6g}"

    def best(self, values: NDArray[np.float64]) -> float:
        """Return the best value; NaN only if all are NaN."""
        return float((np.fmax if self.higher_is_better else np.fmin).reduce(values))

    def reached(self, values: NDArray[np.float64], target: float) -> NDArray[np.bool_]:
        """Return for each value whether it is as good as the target; NaN is not."""
        return values >= target if self.higher_is_better else values <= target


def measures_of(run: Run) -> list[Measure]:
    """Return a run's measures: the main measure, the other metrics, the loss.

    The main measure is the first of ``[evaluate] metrics``; without metrics it is the loss.
    """
    evaluate: object = run.config.get("evaluate", {})
    table = cast("Mapping[str, Any]", evaluate) if isinstance(evaluate, Mapping) else {"metrics": None}
    metrics = table.get("metrics", ["accuracy"])
    if not isinstance(metrics, list) or not all(isinstance(name, str) for name in cast("list[object]", metrics)):
        raise OffbeatError(f"{run.path / 'config.toml'}: evaluate.metrics must be a list of names; run it again")
    # The column of an import path such as "my.py:auc" is the last part; repeated names count once.
    names = list(dict.fromkeys([*(name.rpartition(":")[2] for name in cast("list[str]", metrics)), LOSS]))
    for name in names:
        if name not in run.history:
            raise OffbeatError(f"{run.path}: the history has no column {name!r}, which its config.toml names")
    better = table.get("better", "lower" if names[0] == LOSS else "higher")
    if better not in ("higher", "lower"):
        raise OffbeatError(f"{run.path / 'config.toml'}: evaluate.better must be 'higher' or 'lower', got {better!r}")
    bounds = _bounds(run, names)
    main = Measure(names[0], better == "higher", names[0] in _SHARES, bounds[names[0]])
    return [
        main,
        *(Measure(name, name not in (LOSS, TRAINING_LOSS), name in _SHARES, bounds[name]) for name in names[1:]),
    ]


def _bounds(run: Run, names: Sequence[str]) -> dict[str, Bounds]:
    """Return the bounds of a run's measures; of its own metrics, as it recorded them."""
    built_in = {**KNOWN, TRAINING_LOSS: UNBOUNDED, LOSS: UNBOUNDED}
    model: object = run.config.get("model", {})
    if isinstance(model, Mapping) and cast("Mapping[str, Any]", model).get("loss", "cross_entropy") in _POSITIVE:
        built_in[LOSS] = built_in[TRAINING_LOSS] = AMOUNT
    recorded = read_bounds(run) if any(name not in built_in for name in names) else {}
    return {name: recorded.get(name, built_in.get(name, UNBOUNDED)) for name in names}


def main_measure(runs: Sequence[Run]) -> Measure:
    """Return the main measure of the runs, which must be the same."""
    first = measures_of(runs[0])[0]
    for run in runs[1:]:
        if (other := measures_of(run)[0]) != first:
            raise OffbeatError(
                f"cannot compare {runs[0].path} ({_in_words(first)}) with {run.path} ({_in_words(other)}): "
                "the main measure, the first of evaluate.metrics, must be the same"
            )
    return first


def cost(name: str, run: Run) -> NDArray[np.float64]:
    """Return a run's seconds, updates, versions or bytes up to each evaluation."""
    return np.stack([run.history[column] for column in _COSTS[name]]).sum(axis=0, dtype=np.float64)


def target_for(runs: Sequence[Run], target: float | None = None) -> float | None:
    """Return the value of the main measure that the runs are timed to.

    That is the user's ``target`` or, if it is None, ``evaluate.target`` of the runs, which may be absent.
    """
    measure = main_measure(runs)
    if target is not None:
        if not math.isfinite(target) or (measure.is_share and not 0 <= target <= 1):
            allowed = "between 0 and 1, for instance 0.8 for 80 %" if measure.is_share else "a finite number"
            raise OffbeatError(f"the target for {measure.name} must be {allowed}; got {target:g}")
        return target
    found = [run.config.get("evaluate", {}).get("target") for run in runs]
    targets = {one: None for one in found if is_number(one) and math.isfinite(one)}
    if len(targets) > 1:
        raise OffbeatError(f"the runs have different targets, {', '.join(map(str, targets))}: choose one with --target")
    return next(map(float, targets), None)


def _in_words(measure: Measure) -> str:
    return f"{measure.name}, {'higher' if measure.higher_is_better else 'lower'} is better"
