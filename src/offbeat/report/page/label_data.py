"""The table of the final models' accuracy by label."""

from collections.abc import Sequence

import numpy as np

from offbeat import units
from offbeat.report.page.results import Cell, Column
from offbeat.report.table import NOTHING
from offbeat.runs.directory import Run, read_labels
from offbeat.runs.settings import by_label


def label_columns(runs: Sequence[Run]) -> list[Column]:
    """Return a column for each label of the examples.

    It holds the mean of each algorithm's seeds. Empty if no run has measured it.
    """
    measured = [[read_labels(run) for run in group] for group in by_label(runs).values()]
    labels = sorted({int(label) for group in measured for seed in group for label in seed})
    means = [
        [[seed[str(label)] for seed in group if str(label) in seed] for label in labels]  # by algorithm and label
        for group in measured
    ]
    return [
        Column(str(label), tuple(_cell(of_algorithm[place]) for of_algorithm in means))
        for place, label in enumerate(labels)
    ]


def _cell(values: Sequence[float]) -> Cell:
    if not values:
        return Cell(NOTHING, None)
    mean = float(np.mean(values))
    return Cell(units.percent(mean), mean)
