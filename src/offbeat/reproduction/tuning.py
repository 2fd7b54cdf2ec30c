"""Which of the points that were tried is best, and what is said of it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.report.metrics import main_measure
from offbeat.reproduction.file import Reproduction
from offbeat.reproduction.finished import finished_runs
from offbeat.reproduction.sections import Tuning
from offbeat.runs.directory import Run

TRIES = "tuning"
"""The folder of what was tried, in a figure's own."""
Changes = Mapping[str, Mapping[str, object]]
"""What tuning has changed, for each label by key."""


def tried(reproduction: Reproduction, scale: str, folder: Path) -> list[Run] | None:
    """Return what was tried, none without tuning; None unless all of it was.

    Args:
        reproduction: The figure.
        scale: How large.
        folder: Where its runs are.
    """
    return finished_runs(reproduction.tries(scale), folder / TRIES) if reproduction.tuning else []


def best_of(reproduction: Reproduction, scale: str, tries: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Return what tuning has changed, for each label by key; without tuning nothing is changed.

    Args:
        reproduction: The figure.
        scale: How large.
        tries: All that was tried.
    """
    tuning = reproduction.tuning
    if tuning is None:
        return {}
    scores = _scores(tries)
    best: dict[str, dict[str, Any]] = {}
    for label in reproduction.experiment(scale).algorithms:
        points = tuning.points(label)
        its, scores = scores[: len(points)], scores[len(points) :]
        best[label] = points[max(range(len(points)), key=its.__getitem__)]
    return best


def _scores(runs: Sequence[Run]) -> list[float]:
    """Return how good each run was on average over its time; least for one that diverged."""
    measure = main_measure(runs)
    sign = 1 if measure.higher_is_better else -1
    means = [sign * float(np.mean(run.history[measure.name], dtype=np.float64)) for run in runs]
    return [mean if math.isfinite(mean) else -math.inf for mean in means]


def said_of(tuning: Tuning, best: Changes) -> list[str]:
    """Say what was tried for each algorithm, and what of it was best, in lines."""
    how = ", ".join([f"seed {tuning.seed}", *(f"`{change}`" for change in tuning.set)])
    lines = [f"tried with {how}: {_grid(tuning.all)}"] if best.keys() - tuning.own else []
    lines += [f"for {label} instead: {_grid(grid)}" for label, grid in tuning.own.items()]
    found = "; ".join(f"{label}: {_point(point)}" for label, point in best.items())
    lines.append(f"best on average over the run: {found}")
    if edge := [label for label, point in best.items() if _is_on_the_edge(point, tuning.points(label))]:
        lines.append(f"on the edge of what was tried, so that more or less might be better still: {', '.join(edge)}")
    return lines


def _is_on_the_edge(best: Mapping[str, object], points: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether one of the best values is the least or the greatest of several numbers that were tried."""
    for key, value in best.items():
        numbers = {point[key] for point in points if isinstance(point[key], int | float)}
        if len(numbers) > 1 and value in (min(numbers), max(numbers)):
            return True
    return False


def _grid(grid: Mapping[str, Sequence[object]]) -> str:
    return ", ".join(f"`{key}` {' / '.join(map(str, values))}" for key, values in grid.items())


def _point(point: Mapping[str, object]) -> str:
    return ", ".join(f"`{key}` {value}" for key, value in point.items())
