"""Table of a comparison: a line for each measure, a column for each algorithm."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from offbeat import units
from offbeat.report.curves import STATISTIC_TITLES
from offbeat.report.metrics import LOSS, Measure
from offbeat.report.summary import TAIL, SummaryRow
from offbeat.statistics.estimates import Estimate

NOTHING = "–"
_LABEL = 20  # characters of a label; a longer one is folded unless its column is wider

_Of = Callable[[SummaryRow], Estimate | None]
_Write = Callable[[float, float | None], str]


@dataclass(frozen=True)
class Cell:
    """A text, and the number that it is sorted by."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Line:
    """One measure of all algorithms."""

    name: str
    cells: tuple[Cell, ...]  # one for each algorithm


def lines(rows: Sequence[SummaryRow]) -> list[list[Line]]:
    """Return the lines of the table, in groups that are not empty."""
    main, clients = rows[0].measure, STATISTIC_TITLES if any(row.clients for row in rows) else {}
    groups = [
        _quality(rows, main),
        [
            _line(f"Clients' {main.title}, {title}", rows, lambda row, name=name: row.clients.get(name), main.write)
            for name, title in clients.items()
        ],
        [*_to_target(rows), _durations("Real time", rows, lambda row: row.real_seconds)],
        [
            _line("Updates counted", rows, lambda row: row.counted, units.count),
            _line("Updates unused", rows, lambda row: row.unused, units.count),
            _line("Updates lost", rows, lambda row: row.lost, units.count),
            *_of_clients(rows),
        ],
        [
            _line("Mean staleness", rows, lambda row: row.mean_staleness, units.decimal),
            _numbers("Max staleness", rows, lambda row: row.max_staleness, units.count),
            _line("Model moved per update", rows, lambda row: row.displacement, units.number),
        ],
        [
            _sizes("Sent to clients", rows, lambda row: row.bytes_down),
            _sizes("Sent by clients", rows, lambda row: row.bytes_up),
        ],
        _privacy(rows),
    ]
    return [group for group in groups if group]


def _of_clients(rows: Sequence[SummaryRow]) -> list[Line]:
    if not any(row.waiting_share for row in rows):  # runs of earlier versions
        return []
    return [
        _line("Time clients wait", rows, lambda row: row.waiting_share, units.percent),
        _line("Clients that never counted", rows, lambda row: row.never_counted, units.count),
    ]


def _quality(rows: Sequence[SummaryRow], main: Measure) -> list[Line]:
    result = [
        _line(f"Final {main.title}", rows, lambda row: row.final[main], main.write),
        _line(f"Best {main.title}", rows, lambda row: row.best, main.write),
    ]
    if len(rows) > 1:
        result.insert(1, Line(f"Difference to {rows[0].baseline}", tuple(map(_difference, rows))))
    if any(row.tail for row in rows):
        result.append(_line(f"Mean of last {TAIL}", rows, lambda row: row.tail, main.write))
    # Experiments may have different metrics; the loss comes last.
    others = {measure: None for row in rows for measure in row.final if measure != main}
    for measure in sorted(others, key=lambda measure: measure.name == LOSS):
        name = f"Final {measure.title}"
        result.append(_line(name, rows, lambda row, measure=measure: row.final.get(measure), measure.write))
    return result


def _difference(row: SummaryRow) -> Cell:
    if row.difference is None:
        return Cell(NOTHING)
    mean, low = row.difference.mean, row.difference.low
    half_width = None if low is None else mean - low
    return Cell(NOTHING if row.label == row.baseline else row.measure.write_difference(mean, half_width), mean)


def _to_target(rows: Sequence[SummaryRow]) -> list[Line]:
    if rows[0].target is None:
        return []
    name = rows[0].measure.at(rows[0].target)
    times = _durations(f"Time to {name}", rows, lambda row: row.seconds_to_target)
    reached = tuple(
        Cell(_some_seeds(row)) if row.seconds_to_target is None else cell
        for row, cell in zip(rows, times.cells, strict=True)
    )
    return [
        Line(times.name, reached),
        Line("Speed-up", tuple(map(_speed_up, rows))),
        _line(f"Visits to {name}", rows, lambda row: row.updates_to_target, units.count),
        _sizes(f"Sent to {name}", rows, lambda row: row.bytes_to_target),
    ]


def _some_seeds(row: SummaryRow) -> str:
    """Write the time of an algorithm that missed the target in some seed."""
    if not row.reached:
        return NOTHING
    median = NOTHING if row.median_to_target is None else f"{units.duration(row.median_to_target)}, median"
    return f"{median} ({row.reached} of {row.seeds} seeds)"


def _speed_up(row: SummaryRow) -> Cell:
    if row.speed_up is None:
        return Cell(NOTHING)
    factor, low, high = row.speed_up.mean, row.speed_up.low, row.speed_up.high
    if low is None or high is None or row.label == row.baseline:
        return Cell(units.factor(factor), factor)
    return Cell(f"{units.factor(factor)} ({units.factor(low)[1:]} to {units.factor(high)[1:]})", factor)


def _privacy(rows: Sequence[SummaryRow]) -> list[Line]:
    if all(row.epsilon is None for row in rows):
        return []
    return [
        _numbers("ε, zero-out", rows, lambda row: row.epsilon, _epsilon),
        _numbers("ε, replace one", rows, lambda row: row.epsilon_replace_one, _epsilon),
    ]


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2f}"


def _numbers(
    name: str, rows: Sequence[SummaryRow], of: Callable[[SummaryRow], float | None], write: Callable[[float], str]
) -> Line:
    values = map(of, rows)
    return Line(name, tuple(Cell(NOTHING) if value is None else Cell(write(value), value) for value in values))


def _line(name: str, rows: Sequence[SummaryRow], of: _Of, write: _Write) -> Line:
    """Return a line of means with their intervals."""
    found = map(of, rows)
    cells = (Cell(NOTHING) if one is None else Cell(write(one.mean, one.half_width), one.mean) for one in found)
    return Line(name, tuple(cells))


def _durations(name: str, rows: Sequence[SummaryRow], of: _Of) -> Line:
    # Without an interval a duration has two units, such as 1 h 12 min, so a row needs no common unit.
    found = list(map(of, rows))
    like = _middling(found) if any(one and one.half_width for one in found) else None
    return _line(name, rows, of, lambda mean, half_width: units.duration(mean, half_width, like))


def _sizes(name: str, rows: Sequence[SummaryRow], of: _Of) -> Line:
    like = _middling(map(of, rows))
    return _line(name, rows, of, lambda mean, half_width: units.size(mean, half_width, like))


def _middling(estimates: Iterable[Estimate | None]) -> float | None:
    """Return the lower median, for whose unit few numbers of the row are too small."""
    means = [estimate.mean for estimate in estimates if estimate and estimate.mean > 0]
    return statistics.median_low(means) if means else None


def caption(rows: Sequence[SummaryRow]) -> str:
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


def _fewer_seeds(rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Yield the labels with fewer seeds, or fewer in common with the baseline."""
    most = max(row.seeds for row in rows)
    fewer = [f"{row.label} {row.seeds}" for row in rows if row.seeds < most]
    pairs = [(row.label, row.difference or row.speed_up) for row in rows if row.label != row.baseline]
    common = [f"{label} {pair.seeds}" for label, pair in pairs if pair and pair.seeds < most]
    if fewer:
        yield f"Seeds: {', '.join(fewer)}."
    if common:
        yield f"Seeds in common with {rows[0].baseline}: {', '.join(common)}."


def _interval_note(rows: Sequence[SummaryRow]) -> str:
    has_interval = any(row.speed_up and row.speed_up.low is not None for row in rows)
    return ", seed by seed, with its 95 % confidence interval" if has_interval else ""


class TerminalTable:
    """The table for the terminal, in blocks of columns if it is too wide."""

    def __init__(self, rows: Sequence[SummaryRow]) -> None:
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
            widest = max(cell_len(line.cells[column].text) for group in self._groups for line in group)
            # Text, because rich reads square brackets in a string as markup.
            least = widest if is_narrow else None
            table.add_column(
                Text(label), justify="right", overflow="fold", min_width=least, max_width=max(widest, _LABEL)
            )
        for group in self._groups:
            for line in group:
                table.add_row(Text(line.name), *(cell.text for cell in line.cells[columns]))
            table.add_section()
        return table


def _warnings(rows: Sequence[SummaryRow]) -> list[str]:
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
