"""Finding of a comparison, in one sentence."""

import math
from collections.abc import Sequence

from offbeat import units
from offbeat.report.metrics import Measure
from offbeat.report.summary import SummaryRow
from offbeat.statistics.estimates import Paired


def finding(rows: Sequence[SummaryRow]) -> str:
    """Return the sentence: about the time to the target or, without one, the end.

    It is about the algorithm that does best against the baseline. The more algorithms there are, the likelier the best
    one is so by chance. A difference whose interval includes 0 (a factor: 1) is called "no clear difference". While
    unfinished runs may change it, the sentence names them instead.
    """
    if any(row.undecided for row in rows):
        return _which_are_unfinished(rows)
    baseline = next(row for row in rows if row.label == rows[0].baseline)
    others = [row for row in rows if row is not baseline and not row.other_world]
    if baseline.target is not None and not any(row.speed_up for row in others):
        return _who_reached(rows)
    faster = [(row, row.speed_up) for row in others if row.speed_up is not None]
    if faster:
        return _speed(*max(faster, key=lambda pair: pair[1].mean), baseline, len(others))
    sign = 1 if baseline.measure.higher_is_better else -1
    better = [(row, row.difference) for row in others if row.difference is not None]
    if better:
        return _difference(*max(better, key=lambda pair: sign * pair[1].mean), baseline, len(others))
    return f"{baseline.label} ended at {baseline.measure.write(baseline.final[baseline.measure].mean)}."


def _which_are_unfinished(rows: Sequence[SummaryRow]) -> str:
    names = [
        f"{row.label} (seed{'s' if len(row.undecided) > 1 else ''} {', '.join(map(str, row.undecided))})"
        for row in rows
        if row.undecided
    ]
    return f"No finding yet, unfinished: {', '.join(names)}."


def _who_reached(rows: Sequence[SummaryRow]) -> str:
    name = rows[0].measure.at(rows[0].target or 0.0)
    if not any(row.reached for row in rows):
        return f"No run reached {name}; {_ended_best(rows)}."
    if len(rows) == 1 and (time := rows[0].seconds_to_target):
        return f"{rows[0].label} reached {name} after {units.duration(time.mean)} in {_seeds(time.seeds)}."
    first, *others = sorted(rows, key=lambda row: (-row.reached / row.seeds, _mean_time(row)))
    sentence = f"{first.label} reached {name} in {first.reached} of {_seeds(first.seeds)}"
    if first.seconds_to_target:
        sentence += f", after {units.duration(first.seconds_to_target.mean)} on average"
    return "; ".join([sentence, *(f"{row.label} in {row.reached} of {row.seeds}" for row in others)]) + "."


def _mean_time(row: SummaryRow) -> float:
    return row.seconds_to_target.mean if row.seconds_to_target else math.inf


def _ended_best(rows: Sequence[SummaryRow]) -> str:
    """Return which algorithm ended best; those that diverged, NaN, rank last."""
    sign = 1 if rows[0].measure.higher_is_better else -1
    ends = {row.label: row.final[row.measure].mean for row in rows}
    best = max(ends, key=lambda label: -math.inf if math.isnan(ends[label]) else sign * ends[label])
    return f"{best} ended {'best, ' if len(rows) > 1 else ''}at {rows[0].measure.write(ends[best])}"


def _speed(row: SummaryRow, speed_up: Paired, baseline: SummaryRow, others: int) -> str:
    name, times = row.measure.at(row.target or 0.0), units.factor(speed_up.mean)[1:]
    if speed_up.low is None or speed_up.high is None:
        return f"{row.label} reached {name} {times} times as fast as {baseline.label} in one seed; run several."
    ends = f"{units.factor(speed_up.low)[1:]} to {units.factor(speed_up.high)[1:]}"
    certainty = f"(95 % interval {ends}, {speed_up.seeds} paired seeds)"
    if speed_up.is_clear(1.0):
        return f"{row.label}{_of(others)} reached {name} {times} times as fast as {baseline.label} {certainty}."
    return (
        f"No clear difference in the time to {name}: {row.label} was {times} times as fast as {baseline.label} "
        f"{certainty}."
    )


def _difference(row: SummaryRow, difference: Paired, baseline: SummaryRow, others: int) -> str:
    unit = "points" if row.measure.is_share else row.measure.title
    mean = _amount(row.measure, abs(difference.mean))
    side = "above" if difference.mean >= 0 else "below"
    if difference.low is None or difference.high is None:
        return f"{row.label} ended {mean} {unit} {side} {baseline.label} in one seed; run several."
    ends = f"{_amount(row.measure, difference.low)} to {_amount(row.measure, difference.high)}"
    certainty = f"(95 % interval {ends}, {difference.seeds} paired seeds)"
    if difference.is_clear(0.0):
        return f"{row.label}{_of(others)} ended {mean} {unit} {side} {baseline.label} {certainty}."
    return f"No clear difference at the end: {row.label} is {mean} {unit} {side} {baseline.label} {certainty}."


def _amount(measure: Measure, difference: float) -> str:
    return f"{100 * difference:.1f}" if measure.is_share else units.number(difference)


def _of(others: int) -> str:
    return f", the best of {others}," if others > 1 else ""


def _seeds(number: int) -> str:
    return "1 seed" if number == 1 else f"{number} seeds"
