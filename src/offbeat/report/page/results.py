"""The table of results: an algorithm in each row, a number behind each text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offbeat import units
from offbeat.report import table
from offbeat.report.cost_axes import STATISTIC_TITLES
from offbeat.report.summary import TAIL, Row
from offbeat.report.table import NOTHING
from offbeat.runs.directory import Run, read_labels
from offbeat.runs.settings import by_label
from offbeat.statistics.estimates import Estimate


@dataclass(frozen=True)
class Cell:
    """A text, and the number that it is sorted by."""

    text: str
    value: float | None


@dataclass(frozen=True)
class Column:
    """One measure of all algorithms."""

    name: str
    cells: tuple[Cell, ...]


def columns(rows: Sequence[Row]) -> list[list[Column]]:
    """Return the columns, in groups that are not empty."""
    values = [_values(row) for row in rows]
    return [
        [
            Column(
                line.name,
                tuple(Cell(text, own.get(line.name)) for text, own in zip(line.cells, values, strict=True)),
            )
            for line in group
        ]
        for group in table.lines(rows)
        if group
    ]


def _values(row: Row) -> dict[str, float | None]:
    main = row.measure.title
    estimates: dict[str, Estimate | None] = {
        **{f"Final {measure.title}": estimate for measure, estimate in row.final.items()},
        f"Best {main}": row.best,
        f"Mean of last {TAIL}": row.tail,
        **{f"Clients' {main}, {STATISTIC_TITLES[name]}": estimate for name, estimate in row.clients.items()},
        f"Time to {row.measure.at(row.target or 0.0)}": row.seconds_to_target,
        f"Visits to {row.measure.at(row.target or 0.0)}": row.updates_to_target,
        f"Sent to {row.measure.at(row.target or 0.0)}": row.bytes_to_target,
        "Real time": row.real_seconds,
        "Updates counted": row.counted,
        "Updates unused": row.unused,
        "Updates lost": row.lost,
        "Mean staleness": row.mean_staleness,
        "Sent to clients": row.bytes_down,
        "Sent by clients": row.bytes_up,
    }
    return {name: None if estimate is None else estimate.mean for name, estimate in estimates.items()} | {
        "Speed-up": row.speed_up and row.speed_up.mean,
        f"Difference to {row.baseline}": row.difference and row.difference.mean,
        "Max staleness": row.max_staleness,
        "ε, zero-out": row.epsilon,
        "ε, replace one": row.epsilon_replace_one,
    }


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
