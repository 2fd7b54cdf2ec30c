"""The table of a comparison, for the terminal and for the report: measures down, algorithms across."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from offbeat.experiments import units
from offbeat.experiments.summary import Estimate, Row

NOTHING = "–"


@dataclass(frozen=True)
class Measure:
    """One line of the table."""

    name: str
    cells: tuple[str, ...]  # one an algorithm


def measures(rows: Sequence[Row]) -> list[list[Measure]]:
    """Return the lines of the table in groups that belong together; a group is never empty."""
    time = [_measure("Real time", rows, lambda row: _write(row.real_seconds, units.duration))]
    target = rows[0].target_accuracy if rows else None
    if target is not None:
        time = [
            _measure(f"Time to {units.level(target)}", rows, _time_to_target),
            _measure("Speed-up", rows, _speed_up),
            *time,
        ]
    return [
        [
            _measure("Final accuracy", rows, lambda row: _write(row.final_accuracy, units.percent)),
            _measure("Best accuracy", rows, lambda row: _write(row.best_accuracy, units.percent)),
        ],
        time,
        [
            _measure("Updates counted", rows, lambda row: _write(row.counted, units.count)),
            _measure("Updates unused", rows, lambda row: _write(row.unused, units.count)),
            _measure("Updates lost", rows, lambda row: _write(row.lost, units.count)),
        ],
        [
            _measure("Mean staleness", rows, lambda row: _write(row.mean_staleness, units.decimal)),
            _measure("Max staleness", rows, _max_staleness),
        ],
        [
            _measure("Sent to clients", rows, lambda row: _write(row.bytes_down, units.size)),
            _measure("Sent by clients", rows, lambda row: _write(row.bytes_up, units.size)),
        ],
    ]


def caption(rows: Sequence[Row]) -> str:
    """Return what a reader of the table must know; empty if nothing."""
    sentences: list[str] = []
    if rows and rows[0].target_accuracy is not None:
        sentences.append(f"Time to {units.level(rows[0].target_accuracy)}: first evaluation at or above it.")
        baseline = next((row for row in rows if row.label == rows[0].baseline), None)
        if baseline and baseline.seconds_to_target is None:
            sentences.append(f"No speed-up: {baseline.label}, the baseline, missed it{_in_some_seed(baseline)}.")
        else:
            sentences.append(f"Speed-up: over {rows[0].baseline}.")
    seeds = sorted({row.seeds for row in rows})
    if seeds[-1:] > [1]:
        number = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        sentences.append(f"Mean ± sample standard deviation over {number} seeds.")
    return " ".join(sentences)


def _in_some_seed(row: Row) -> str:
    return " in some seed" if row.reached else ""


def terminal_table(rows: Sequence[Row]) -> Table:
    """Return the table for the terminal."""
    table = Table(box=box.SIMPLE, pad_edge=False, caption=Text(caption(rows)), caption_justify="left")
    table.add_column("", no_wrap=True)
    for row in rows:
        # Text, because in a plain string rich would take square brackets for markup.
        table.add_column(Text(row.label), justify="right", overflow="fold")
    for group in measures(rows):
        for measure in group:
            table.add_row(Text(measure.name), *measure.cells)
        table.add_section()
    return table


def _measure(name: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> Measure:
    return Measure(name, tuple(cell(row) for row in rows))


def _write(estimate: Estimate | None, unit: Callable[[float, float | None], str]) -> str:
    return NOTHING if estimate is None else unit(estimate.mean, estimate.deviation)


def _time_to_target(row: Row) -> str:
    some = f" ({row.reached} of {row.seeds} seeds)" if 0 < row.reached < row.seeds else ""
    return _write(row.seconds_to_target, units.duration) + some


def _speed_up(row: Row) -> str:
    return NOTHING if row.speed_up is None else units.factor(row.speed_up)


def _max_staleness(row: Row) -> str:
    return NOTHING if row.max_staleness is None else units.count(row.max_staleness)
