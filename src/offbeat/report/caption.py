"""Text below the table of a comparison: what its columns mean, and warnings."""

import math
from collections.abc import Iterator, Sequence

from offbeat import units
from offbeat.report.summary import TAIL, SummaryRow
from offbeat.report.table import MARK, main_lines


def caption(rows: Sequence[SummaryRow]) -> str:
    """Return the text below the table, each warning on its own line; may be empty."""
    sentences: list[str] = []
    first = rows[0]
    if any(cell.is_best for line in main_lines(rows) for cell in line.cells):
        sentences.append(f"{MARK}: the best, and all that simultaneous 95 % intervals do not separate from it.")
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
        sentences.append(f"Mean ± half the 95 % confidence interval (Student's t), or its ends, over {number} seeds.")
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
            until = units.duration(seconds)
            warnings.append(f"{row.label}, seed {seed} is unfinished: read up to {until} of virtual time.")
    return warnings
