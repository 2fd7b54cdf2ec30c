"""Table of a comparison: a line for each measure, a column for each algorithm."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from offbeat import units
from offbeat.report.metrics import Measure
from offbeat.report.summary import TAIL, Row
from offbeat.statistics.estimates import Estimate

NOTHING = "–"
_LABEL = 20  # characters of a label; a longer one is folded unless its column is wider


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    cells: tuple[str, ...]  # one for each algorithm


def lines(rows: Sequence[Row]) -> list[list[Line]]:
    """Return the lines of the table, in groups that are not empty."""
    measure = rows[0].measure
    time = [Line("Real time", _durations([row.real_seconds for row in rows]))]
    if rows[0].target is not None:
        name = rows[0].measure.at(rows[0].target)
        time = [
            Line(f"Time to {name}", _times_to_target(rows)),
            _line("Speed-up", rows, _speed_up),
            _line(f"Visits to {name}", rows, lambda row: _write(row.updates_to_target, units.count)),
            Line(f"Sent to {name}", _sizes([row.bytes_to_target for row in rows])),
            *time,
        ]
    return [
        _quality(rows, measure),
        _on_clients(rows, measure),
        time,
        [
            _line("Updates counted", rows, lambda row: _write(row.counted, units.count)),
            _line("Updates unused", rows, lambda row: _write(row.unused, units.count)),
            _line("Updates lost", rows, lambda row: _write(row.lost, units.count)),
        ],
        [
            _line("Mean staleness", rows, lambda row: _write(row.mean_staleness, units.decimal)),
            _line("Max staleness", rows, _max_staleness),
        ],
        [
            Line("Sent to clients", _sizes([row.bytes_down for row in rows])),
            Line("Sent by clients", _sizes([row.bytes_up for row in rows])),
        ],
        _privacy(rows),
    ]


def _on_clients(rows: Sequence[Row], measure: Measure) -> list[Line]:
    if not any(row.clients for row in rows):
        return []
    names = {"weighted": "by examples", "mean": "mean", "p10": "10th percentile", "p50": "median",
             "p90": "90th percentile", "worst": "worst tenth"}  # fmt: skip
    return [
        _line(
            f"Clients' {measure.title}, {name}",
            rows,
            lambda row, statistic=statistic: _write(row.clients.get(statistic), measure.write),
        )
        for statistic, name in names.items()
    ]


def _privacy(rows: Sequence[Row]) -> list[Line]:
    if all(row.epsilon is None for row in rows):
        return []
    return [
        _line("ε, zero-out", rows, lambda row: _epsilon(row.epsilon)),
        _line("ε, replace one", rows, lambda row: _epsilon(row.epsilon_replace_one)),
    ]


def _epsilon(value: float | None) -> str:
    if value is None:
        return NOTHING
    return "∞" if math.isinf(value) else f"{value:.2f}"


def caption(rows: Sequence[Row]) -> str:
    """Return the text below the table, each warning on its own line; may be empty."""
    sentences: list[str] = []
    first = rows[0]
    if any(row.tail for row in rows):
        sentences.append(f"Mean of last {TAIL}: over the last {TAIL} evaluations.")
    if first.target is not None:
        side = "above" if first.measure.higher_is_better else "below"
        sentences.append(f"Time to {first.measure.at(first.target)}: first evaluation at or {side} it.")
        if any(row.seconds_to_target is None and row.median_to_target is not None for row in rows):
            sentences.append("Median: of all seeds; a seed that missed it counts as the slowest.")
        baseline = next((row for row in rows if row.label == first.baseline), None)
        has_speed_up = any(row.speed_up for row in rows if row is not baseline)
        if baseline and baseline.seconds_to_target is None and not has_speed_up:
            some = " in some seed" if baseline.reached else ""
            missed = "has not reached it yet" if baseline.undecided else "missed it"
            sentences.append(f"No speed-up: {baseline.label}, the baseline, {missed}{some}.")
        else:
            sentences.append(f"Speed-up: over {first.baseline}{_interval_note(rows)}.")
        if any(row.other_world for row in rows):
            sentences.append("No speed-up across different worlds.")
    seeds = sorted({row.seeds for row in rows})
    if seeds[-1] > 1:
        number = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        sentences.append(f"Mean ± half the 95 % confidence interval (Student's t) over {number} seeds.")
        sentences += _fewer_seeds(rows)
    if any(row.epsilon is not None and math.isfinite(row.epsilon) for row in rows):
        sentences.append("ε: of a run with secret noise; a simulation's is made of its seed and protects nobody.")
    return "\n".join(filter(None, [" ".join(sentences), *_warnings(rows)]))


def _fewer_seeds(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the labels with fewer seeds, or fewer in common with the baseline."""
    most = max(row.seeds for row in rows)
    fewer = [f"{row.label} {row.seeds}" for row in rows if row.seeds < most]
    pairs = [(row.label, row.difference or row.speed_up) for row in rows if row.label != row.baseline]
    common = [f"{label} {pair.seeds}" for label, pair in pairs if pair and pair.seeds < most]
    if fewer:
        yield f"Seeds: {', '.join(fewer)}."
    if common:
        yield f"Seeds in common with {rows[0].baseline}: {', '.join(common)}."


def _interval_note(rows: Sequence[Row]) -> str:
    has_interval = any(row.speed_up and row.speed_up.low is not None for row in rows)
    return ", seed by seed, with its 95 % confidence interval" if has_interval else ""


class TerminalTable:
    """The table for the terminal, in blocks of columns if it is too wide."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._labels = [row.label for row in rows]
        self._groups = lines(rows)
        self._caption = caption(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        number = len(self._labels)
        unlimited = options.update_width(10**6)
        tables: list[Table] = []
        for blocks in range(1, number + 1):
            cuts = [math.ceil(block * number / blocks) for block in range(blocks + 1)]
            tables = [self._table(slice(*ends)) for ends in pairwise(cuts)]
            if all(Measurement.get(console, unlimited, table).maximum <= options.max_width for table in tables):
                break
        else:  # not even one column fits: the names are folded, the values are not
            tables = [self._table(slice(column, column + 1), is_narrow=True) for column in range(number)]
        yield from tables
        yield Text(self._caption, style="table.caption")

    def _table(self, columns: slice, *, is_narrow: bool = False) -> Table:
        table = Table(box=box.SIMPLE, pad_edge=False)
        table.add_column("", no_wrap=not is_narrow, overflow="fold")
        for column, label in list(enumerate(self._labels))[columns]:
            widest = max(cell_len(line.cells[column]) for group in self._groups for line in group)
            # Text, because rich reads square brackets in a string as markup.
            least = widest if is_narrow else None
            table.add_column(
                Text(label), justify="right", overflow="fold", min_width=least, max_width=max(widest, _LABEL)
            )
        for group in self._groups:
            for line in group:
                table.add_row(Text(line.name), *line.cells[columns])
            table.add_section()
        return table


def _quality(rows: Sequence[Row], main: Measure) -> list[Line]:
    result = [
        _line(f"Final {main.title}", rows, lambda row: _write(row.final[main], main.write)),
        _line(f"Best {main.title}", rows, lambda row: _write(row.best, main.write)),
    ]
    if len(rows) > 1:
        result.insert(1, _line(f"Difference to {rows[0].baseline}", rows, _difference))
    if any(row.tail for row in rows):
        result.append(_line(f"Mean of last {TAIL}", rows, lambda row: _write(row.tail, main.write)))
    # Experiments may have different metrics; the loss comes last.
    others = {measure: None for row in rows for measure in row.final if measure != main}
    for measure in sorted(others, key=lambda measure: measure.name == "loss"):
        result.append(_line(f"Final {measure.title}", rows, _final(measure)))
    return result


def _difference(row: Row) -> str:
    if row.difference is None or row.label == row.baseline:
        return NOTHING
    mean, low = row.difference.mean, row.difference.low
    half_width = None if low is None else mean - low
    return row.measure.write_difference(mean, half_width)


def _final(measure: Measure) -> Callable[[Row], str]:
    return lambda row: _write(row.final.get(measure), measure.write)


def _warnings(rows: Sequence[Row]) -> list[str]:
    warnings: list[str] = []
    for row in rows:
        if row.without_version:
            without = row.without_version
            seeds = f"{'seed' if len(without) == 1 else 'seeds'} {', '.join(map(str, without))}"
            some = "" if len(without) == row.seeds else f", {seeds},"
            warnings.append(
                f"{row.label}{some} did not make a version: its model is still the initial one. {row.why_no_version}"
            )
        for seed, seconds in row.unfinished.items():
            warnings.append(f"{row.label}, seed {seed} is unfinished: read up to {seconds:,.0f} virtual seconds.")
    return warnings


def _line(name: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> Line:
    return Line(name, tuple(cell(row) for row in rows))


def _write(estimate: Estimate | None, unit: Callable[[float, float | None], str]) -> str:
    return NOTHING if estimate is None else unit(estimate.mean, estimate.half_width)


def _times_to_target(rows: Sequence[Row]) -> tuple[str, ...]:
    times = _durations([row.seconds_to_target for row in rows])
    return tuple(
        _some_seeds(row) if row.seconds_to_target is None else time for row, time in zip(rows, times, strict=True)
    )


def _some_seeds(row: Row) -> str:
    """Write the time of an algorithm that missed the target in some seed."""
    if not row.reached:
        return NOTHING
    median = NOTHING if row.median_to_target is None else f"{units.duration(row.median_to_target)}, median"
    return f"{median} ({row.reached} of {row.seeds} seeds)"


def _durations(estimates: Sequence[Estimate | None]) -> tuple[str, ...]:
    # Without an interval a duration has two units, such as 1 h 12 min, so a row needs no common unit.
    like = _middling(estimates) if any(estimate and estimate.half_width for estimate in estimates) else None
    return tuple(_write(one, lambda mean, half_width: units.duration(mean, half_width, like)) for one in estimates)


def _sizes(estimates: Sequence[Estimate | None]) -> tuple[str, ...]:
    like = _middling(estimates)
    return tuple(_write(one, lambda mean, half_width: units.size(mean, half_width, like)) for one in estimates)


def _middling(estimates: Sequence[Estimate | None]) -> float | None:
    """Return the lower median, for whose unit few numbers of the row are too small."""
    means = [estimate.mean for estimate in estimates if estimate and estimate.mean > 0]
    return statistics.median_low(means) if means else None


def _speed_up(row: Row) -> str:
    if row.speed_up is None:
        return NOTHING
    factor, low, high = row.speed_up.mean, row.speed_up.low, row.speed_up.high
    if low is None or high is None or row.label == row.baseline:
        return units.factor(factor)
    return f"{units.factor(factor)} ({units.factor(low)[1:]} to {units.factor(high)[1:]})"


def _max_staleness(row: Row) -> str:
    return NOTHING if row.max_staleness is None else units.count(row.max_staleness)
