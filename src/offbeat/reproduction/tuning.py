"""Which of the points that were tried is best."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.experiments.measure import main_measure
from offbeat.experiments.run_directory import Run
from offbeat.reproduction.file import Reproduction
from offbeat.reproduction.finished import finished_runs

TRIES = "tuning"
"""The folder of what was tried, in a figure's own."""


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
