"""Trials as an experiment: each algorithm at several points of its settings."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from offbeat_core.errors import OffbeatError

from offbeat.config.algorithm_table import as_inline_toml
from offbeat.config.experiment_file import Experiment, experiment_of
from offbeat.config.experiment_sections import metric_name
from offbeat.report.metrics import Measure
from offbeat.runs.directory import Run

Point = Mapping[str, Any]
"""Values by key of ``[algorithms.LABEL]``, such as ``server_lr``, ``local.lr`` or ``staleness.a``."""

_TIE = 1e-9  # of the score: times to a target are apart by more, and often equal, since evaluations have an interval
LAST = 10  # evaluations at the end whose mean is compared: a single one fluctuates


@dataclass(frozen=True)
class Trial:
    """A point, and how well the algorithm did there."""

    label: str
    number: int
    point: Point
    value: float  # mean over the seeds, of the mean of the last evaluations
    score: float  # by ``rank_score``: higher is better
    seconds: float | None = None  # mean virtual time to the target; None without one, or if a run missed it


def trial_label(label: str, number: int) -> str:
    """Return the label of a trial's runs."""
    return f"{label} {number}"


def in_words(point: Point) -> str:
    """Return a point as ``server_lr = 0.5, local.lr = 0.1``."""
    return ", ".join(f"{key} = {as_inline_toml(value)}" for key, value in point.items())


def at_point(table: Mapping[str, Any], label: str, point: Point) -> dict[str, Any]:
    """Return an experiment's table ``[algorithms.LABEL]`` with a point's values.

    A table below ``[local]`` or ``[privacy]`` is taken from there if the algorithm has none of its own.
    """
    changed: dict[str, Any] = copy.deepcopy(table["algorithms"][label])
    for key, value in point.items():
        *parents, last = key.split(".")
        inner: Any = changed
        shared: Any = table
        for depth, parent in enumerate(parents):
            shared = shared.get(parent, {}) if isinstance(shared, Mapping) else {}
            inner = inner.setdefault(parent, copy.deepcopy(shared) if depth else {})
            if not isinstance(inner, dict):
                raise OffbeatError(f"algorithms.{label}.{key}: {parent} is a value, not a table")
        inner[last] = value
    return changed


def trials_experiment(
    table: Mapping[str, Any], points: Mapping[str, Mapping[int, Point]], path: Path, changes: Mapping[str, Any]
) -> Experiment:
    """Return the experiment that has an algorithm for each trial.

    ``table`` is that of the file ``path``, ``points`` those of each label by the trial's number, ``changes`` other
    values of the table.
    """
    algorithms = {
        trial_label(label, number): {"algorithm": label, **at_point(table, label, point)}
        for label, numbered in points.items()
        for number, point in numbered.items()
    }
    return experiment_of({**table, **changes, "algorithms": algorithms}, path)


def measure_name(experiment: Experiment) -> str:
    """Return the column of the history that trials are compared by."""
    return metric_name(experiment.metrics[0]) if experiment.metrics else "loss"


def trial_of(
    experiment: Experiment,
    label: str,
    number: int,
    point: Point,
    runs: Sequence[Run],
    target: float | None = None,
) -> Trial:
    """Return a trial from its runs, one for each seed."""
    name, is_higher = measure_name(experiment), experiment.better == "higher"
    value = float(np.mean([np.mean(run.history[name][-LAST:], dtype=np.float64) for run in runs]))
    seconds: float | None = None
    if target is not None and math.isfinite(value):
        measure = Measure(name, is_higher, is_share=False)
        reached = [run.history["seconds"][measure.reached(run.history[name], target)] for run in runs]
        if all(map(len, reached)):
            seconds = float(np.mean([times[0] for times in reached]))
    score = rank_score(value, seconds, target, higher_is_better=is_higher)
    return Trial(label, number, point, value, score, seconds)


def rank_score(value: float, seconds: float | None, target: float | None, *, higher_is_better: bool) -> float:
    """Return a score, higher for better, that ranks trials.

    ``seconds`` is the time to the ``target`` of the measure, None if a run missed it. Without a target the score
    is the value. With one, trials that reach it rank by the time to it, then by the value, before all that miss it.
    """
    score = score_of(value, higher_is_better=higher_is_better)
    if target is None or score == -math.inf:
        return score
    if seconds is not None:
        return (1 + _TIE * score / (1 + abs(score))) / (1 + seconds)
    # A run that missed it may have another beside it that did not: the mean may be beyond the target.
    return min(score - score_of(target, higher_is_better=higher_is_better), 0.0)


def score_of(value: float, *, higher_is_better: bool) -> float:
    """Return a value so that higher is better; -inf for one that is not finite."""
    if not math.isfinite(value):
        return -math.inf
    return value if higher_is_better else -value


def best_of(scores: Sequence[float]) -> int:
    """Return the place of the highest score; the first of equal ones."""
    return max(range(len(scores)), key=scores.__getitem__)
