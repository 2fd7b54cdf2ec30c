"""Table of a comparison: a line for each measure, a column for each algorithm."""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from offbeat import units
from offbeat.report.best import best_ends, fastest
from offbeat.report.curves import STATISTIC_TITLES
from offbeat.report.metrics import LOSS, Measure
from offbeat.report.summary import TAIL, SummaryRow
from offbeat.statistics.estimates import Estimate

NOTHING = "–"
MARK = "•"  # before the best values

_SHARE = Measure("share", higher_is_better=True, is_share=True)
_Of = Callable[[SummaryRow], Estimate | None]
_Write = Callable[[float, float | None], str]


@dataclass(frozen=True)
class Cell:
    """A text, and the number that it is sorted by."""

    text: str
    value: float | None = None
    is_best: bool = False  # or not separated from the best

    @property
    def marked(self) -> str:
        """The text, with a mark before one of the best."""
        return f"{MARK} {self.text}" if self.is_best else self.text


@dataclass(frozen=True)
class Line:
    """One measure of all algorithms."""

    name: str
    cells: tuple[Cell, ...]  # one for each algorithm


def lines(rows: Sequence[SummaryRow]) -> list[list[Line]]:
    """Return the lines of the table, in groups that are not empty."""
    groups = [main_lines(rows), *cost_groups(rows), *other_groups(rows)]
    return [group for group in groups if group]


def main_lines(rows: Sequence[SummaryRow]) -> list[Line]:
    """Return what decides: time to the target, speed-up, end, difference, ε."""
    main = rows[0].measure
    final = _line(f"Final {main.title}", rows, lambda row: row.final[main], main.write)
    result = [*_to_target(rows), _with_marks(final, rows, best_ends(rows))]
    if len(rows) > 1:
        result.append(Line(f"Difference to {rows[0].baseline}", tuple(map(_difference, rows))))
    return result + _privacy(rows)


def cost_groups(rows: Sequence[SummaryRow]) -> list[list[Line]]:
    """Return how the runs went, which no mark calls good or bad."""
    return [
        [
            _line("Versions", rows, lambda row: row.versions, units.count),
            _line("Mean staleness", rows, lambda row: row.mean_staleness, units.decimal),
            _numbers("Max staleness", rows, lambda row: row.max_staleness, units.count),
            _line("Model moved per update", rows, lambda row: row.displacement, units.number),
        ],
        [
            _line("Updates counted", rows, lambda row: row.counted, units.count),
            _line("Updates unused", rows, lambda row: row.unused, units.count),
            _line("Updates lost", rows, lambda row: row.lost, units.count),
            *_of_clients(rows),
        ],
        [
            _sizes("Sent to clients", rows, lambda row: row.bytes_down),
            _sizes("Sent by clients", rows, lambda row: row.bytes_up),
        ],
    ]


def other_groups(rows: Sequence[SummaryRow]) -> list[list[Line]]:
    """Return the other measures: of quality, of clients, until the target."""
    main, clients = rows[0].measure, STATISTIC_TITLES if any(row.clients for row in rows) else {}
    return [
        _quality(rows, main),
        [
            _line(f"Clients' {main.title}, {title}", rows, lambda row, name=name: row.clients.get(name), main.write)
            for name, title in clients.items()
        ],
        [*_costs_to_target(rows), _durations("Real time", rows, lambda row: row.real_seconds)],
    ]


def _of_clients(rows: Sequence[SummaryRow]) -> list[Line]:
    if not any(row.waiting_share for row in rows):  # runs of earlier versions
        return []
    return [
        _line("Time clients wait", rows, lambda row: row.waiting_share, _SHARE.write),
        _line("Clients that never counted", rows, lambda row: row.never_counted, units.count),
    ]


def _quality(rows: Sequence[SummaryRow], main: Measure) -> list[Line]:
    result = [_line(f"Best {main.title}", rows, lambda row: row.best, main.write)]
    if any(row.tail for row in rows):
        result.append(_line(f"Mean of last {TAIL}", rows, lambda row: row.tail, main.write))
    # Experiments may have different metrics; the loss comes last.
    others = {measure: None for row in rows for measure in row.final if measure != main}
    for measure in sorted(others, key=lambda measure: measure.name == LOSS):
        name = f"Final {measure.title}"
        result.append(_line(name, rows, lambda row, measure=measure: row.final.get(measure), measure.write))
    return result


def _with_marks(line: Line, rows: Sequence[SummaryRow], best: Collection[str]) -> Line:
    cells = (
        replace(cell, is_best=row.label in best and not cell.text.startswith(NOTHING))
        for row, cell in zip(rows, line.cells, strict=True)
    )
    return Line(line.name, tuple(cells))


def _difference(row: SummaryRow) -> Cell:
    if row.difference is None:
        return Cell(NOTHING)
    mean, low = row.difference.mean, row.difference.low
    half_width = None if low is None else mean - low
    return Cell(NOTHING if row.label == row.baseline else row.measure.write_difference(mean, half_width), mean)


def _to_target(rows: Sequence[SummaryRow]) -> list[Line]:
    if rows[0].target is None:
        return []
    times = _durations(f"Time to {_target(rows)}", rows, lambda row: row.seconds_to_target)
    reached = tuple(
        Cell(_some_seeds(row)) if row.seconds_to_target is None else cell
        for row, cell in zip(rows, times.cells, strict=True)
    )
    return [
        _with_marks(Line(times.name, reached), rows, fastest(rows)),
        Line("Speed-up", tuple(map(_speed_up, rows))),
    ]


def _costs_to_target(rows: Sequence[SummaryRow]) -> list[Line]:
    if rows[0].target is None:
        return []
    return [
        _line(f"Visits to {_target(rows)}", rows, lambda row: row.updates_to_target, units.count),
        _sizes(f"Sent to {_target(rows)}", rows, lambda row: row.bytes_to_target),
    ]


def _target(rows: Sequence[SummaryRow]) -> str:
    return rows[0].measure.at(rows[0].target or 0.0)


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
    return Line(name, tuple(Cell(NOTHING) if one is None else Cell(_text(one, write), one.mean) for one in found))


def _text(one: Estimate, write: _Write) -> str:
    """Write a mean as ``72.1 ± 3.2 min``, or ``22.7 min (8.1 to 63.4 min)``.

    The second form is for an interval that is not even, since times, counts and bytes are not below 0.
    """
    ends = one.interval
    if ends is None or one.bounds[0] or not math.isinf(one.bounds[1]) or not one.is_uneven:
        return write(one.mean, one.half_width)
    if math.isinf(ends[1]):
        return f"{write(one.mean, None)} (0 to ∞)"
    (low, _, low_unit), (high, _, unit) = (write(end, None).partition(" ") for end in ends)
    low = low if low_unit == unit else f"{low} {low_unit}"
    return f"{write(one.mean, None)} ({low} to {high}{' ' if unit else ''}{unit})"


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
