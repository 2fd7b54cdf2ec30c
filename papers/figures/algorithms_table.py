"""The Markdown table of all algorithms of a figure."""

import math
from collections.abc import Callable, Sequence

from offbeat import units
from offbeat.report.confidence_interval import estimate
from offbeat.report.metrics import main_measure, target_for
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label
from papers.figures.quantities import cost_to_target
from papers.figures.worst_client import worst_client_accuracy

Write = Callable[[float, float | None], str]


def mean_in_words(values: Sequence[float], write: Write, otherwise: str) -> str:
    """Return the mean of the finite values with its 95 % interval.

    Their number is given as well unless all are finite.

    Args:
        values: One for each seed.
        write: Writes a mean and half the width of its interval, which is None for one value.
        otherwise: The text if no value is finite.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return otherwise
    mean = estimate(finite)
    text = write(mean.mean, mean.half_width)
    return text if len(finite) == len(values) else f"{text} ({len(finite)} of {len(values)} seeds)"


def algorithms_table(runs: Sequence[Run]) -> str:
    """Return a table of the algorithms.

    It has the time and the bytes to the target, the final main measure, and the same for the worst client.
    """
    measure, target = main_measure(runs), target_for(runs)
    assert target is not None
    lines = [
        f"| | time to {measure.at(target)} | sent until then | {measure.title} at the end | of the worst client |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for label, group in by_label(runs).items():
        cells = [
            mean_in_words([cost_to_target("seconds", run) for run in group], units.duration, "never"),
            mean_in_words([cost_to_target("bytes", run) for run in group], units.size, "never"),
            mean_in_words([float(run.history[measure.name][-1]) for run in group], measure.write, "diverged"),
            mean_in_words([worst_client_accuracy(run) for run in group], units.percent, "diverged"),
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)
