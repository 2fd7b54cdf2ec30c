"""Tuning runs, and the hyper-parameters chosen from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.report.metrics import main_measure
from offbeat.runs.directory import Run
from offbeat.sweeps.trials import best_of, score_of
from offbeat_studies.papers.figures.completed_runs import completed_runs
from offbeat_studies.papers.figures.figure_file import ComparisonFigure
from offbeat_studies.papers.figures.sections import Tuning

TUNING_FOLDER = "tuning"  # in the figure's folder
Points = Mapping[str, Mapping[str, object]]  # the chosen values of each label, by key


def tuning_runs(figure: ComparisonFigure, scale: str, folder: Path) -> list[Run] | None:
    """Return a figure's tuning runs, maybe none; None unless all have completed."""
    return completed_runs(figure.tuning_experiment(scale), folder / TUNING_FOLDER) if figure.tuning else []


def best_points(figure: ComparisonFigure, scale: str, runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Return the best point of each label, by key; none without tuning."""
    if figure.tuning is None:
        return {}
    scores = [_score(run) for run in runs]
    best: dict[str, dict[str, Any]] = {}
    for label in figure.experiment(scale).algorithms:
        points = figure.tuning.points(label)
        own, scores = scores[: len(points)], scores[len(points) :]
        best[label] = points[best_of(own)]
    return best


def _score(run: Run) -> float:
    """Return the mean of the main measure, higher for better; −∞ if the run diverged."""
    measure = main_measure([run])
    mean = float(np.mean(run.history[measure.name], dtype=np.float64))
    return score_of(mean, higher_is_better=measure.higher_is_better)


def tuning_lines(tuning: Tuning, best: Points) -> list[str]:
    """Return the tried and the best points, in lines of Markdown."""
    setting = ", ".join([f"seed {tuning.seed}", *(f"`{change}`" for change in tuning.set)])
    lines = [f"tried with {setting}: {_grid(tuning.all)}"] if best.keys() - tuning.own else []
    lines += [f"for {label} instead: {_grid(grid)}" for label, grid in tuning.own.items() if label in best]
    found = "; ".join(f"{label}: {_point(point)}" for label, point in best.items())
    lines.append(f"best on average over the run: {found}")
    if edge := edge_labels(tuning, best):
        lines.append(f"at the edge of the tried values, beyond which others may be better: {', '.join(edge)}")
    return lines


def edge_labels(tuning: Tuning | None, best: Points) -> list[str]:
    """Return the labels whose best value is the lowest or highest one tried."""
    if tuning is None:
        return []
    return [label for label, point in best.items() if _is_on_edge(point, tuning.points(label))]


def _is_on_edge(best: Mapping[str, object], points: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a best value is the lowest or highest of several numbers tried."""
    for key, value in best.items():
        numbers = {point[key] for point in points if isinstance(point[key], int | float)}
        if len(numbers) > 1 and value in (min(numbers), max(numbers)):
            return True
    return False


def _grid(grid: Mapping[str, Sequence[object]]) -> str:
    return ", ".join(f"`{key}` {' / '.join(map(str, values))}" for key, values in grid.items())


def _point(point: Mapping[str, object]) -> str:
    return ", ".join(f"`{key}` {value}" for key, value in point.items())
