"""All algorithms of a figure side by side, as a Markdown table."""

import math
from collections.abc import Callable, Sequence

from offbeat import units
from offbeat.report.confidence_interval import estimate
from offbeat.report.metrics import main_measure, target_for
from offbeat.reproduction.quantities import cost_to_target
from offbeat.reproduction.worst_client import worst_client_accuracy
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label

Write = Callable[[float, float | None], str]


def in_words(values: Sequence[float], write: Write, otherwise: str) -> str:
    """Return the mean of the values that are finite with its 95 % interval, and how many those are if not all.

    Args:
        values: One a seed.
        write: Writes a mean and half the width of its interval, None for one value.
        otherwise: What is written if none is finite.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return otherwise
    mean = estimate(known)
    text = write(mean.mean, mean.half_width)
    return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)} seeds)"


def side_by_side(runs: Sequence[Run]) -> str:
    """Return the table: time and bytes to the target, the main measure at the end, and that of the worst client."""
    measure, target = main_measure(runs), target_for(runs)
    assert target is not None
    lines = [
        f"| | time to {measure.at(target)} | sent until then | {measure.title} at the end | of the worst client |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for label, its in by_label(runs).items():
        cells = [
            in_words([cost_to_target("seconds", run) for run in its], units.duration, "never"),
            in_words([cost_to_target("bytes", run) for run in its], units.size, "never"),
            in_words([float(run.history[measure.name][-1]) for run in its], measure.write, "diverged"),
            in_words([worst_client_accuracy(run) for run in its], units.percent, "diverged"),
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)
