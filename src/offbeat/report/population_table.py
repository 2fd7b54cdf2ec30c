"""Table of a population for the terminal."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from offbeat import units
from offbeat.report.population_statistics import TIMES, PopulationStatistics, effective_labels


def population_table(statistics: PopulationStatistics) -> Table:
    """Return the table, with sentences below it."""
    table = Table(
        box=box.SIMPLE,
        pad_edge=False,
        # Text, because rich reads square brackets in a string as markup.
        title=Text(f"{statistics.title}, seed {statistics.seed}: {how_many(statistics)}"),
        title_justify="left",
        title_style="bold",
        caption=Text(" ".join(_sentences(statistics))),
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for name in ("min", "median", "mean", "95 %", "max"):
        table.add_column(name, justify="right")

    def row(name: str, values: NDArray[np.float64] | NDArray[np.int64], write: Callable[[float], str]) -> None:
        table.add_row(name, *(write(number) for number in _spread(values)))

    row("Examples a client", statistics.examples, _number)
    if statistics.label_counts is not None:
        row("Labels a client", (statistics.label_counts > 0).sum(axis=1), _number)
        row("  effective number", effective_labels(statistics.label_counts), units.decimal)
    table.add_section()
    row("A visit", statistics.visit_seconds, seconds)
    for name, values in statistics.visit_parts.items():
        row(f"  {name}", values, seconds)
    table.add_section()
    row("Available clients", statistics.presence.share, units.percent)
    visits = _visits_before_leaving(statistics)
    if len(visits):
        row("Visits before it leaves", visits, _number)
    return table


def how_many(statistics: PopulationStatistics) -> str:
    """Write the number of clients."""
    return f"{statistics.clients:,} client{'s' if statistics.clients != 1 else ''}"


def seconds(duration: float) -> str:
    """Write a duration, below a second with two digits: ``0.0042 s``."""
    return f"{duration:.2g} s" if duration < 0.995 else units.duration(duration)


def _visits_before_leaving(statistics: PopulationStatistics) -> NDArray[np.float64]:
    """Return how many visits fit before a client leaves, for each available moment."""
    presence = statistics.presence
    visits = np.floor(presence.stays / statistics.visit_seconds[presence.clients, np.newaxis])
    return visits[presence.is_available]


def _spread(values: NDArray[np.float64] | NDArray[np.int64]) -> tuple[float, float, float, float, float]:
    """Return minimum, median, mean, 95th percentile, maximum."""
    # np.quantile would return NaN between two infinities.
    ordered = np.sort(values).tolist()
    number = len(ordered)
    median = (ordered[(number - 1) // 2] + ordered[number // 2]) / 2
    return ordered[0], median, sum(ordered) / number, ordered[math.ceil(0.95 * number) - 1], ordered[-1]


def _sentences(statistics: PopulationStatistics) -> list[str]:
    ordered = np.sort(statistics.visit_seconds)
    slowest = np.median(ordered[len(ordered) * 9 // 10 :])
    down, up = units.size(statistics.model_bytes), units.size(statistics.upload_bytes)
    sentences = [
        f"A visit: {_steps(statistics.steps)} local steps; {down} down, {up} up.",
        f"The slowest tenth takes {slowest / np.median(ordered):.1f} times as long as the median client.",
        _lossy(statistics.loss_probability),
    ]
    presence = statistics.presence
    visits = _visits_before_leaving(statistics)
    if not len(visits):
        sentences.append("No client is available at any of these times.")
    elif np.isinf(presence.stays).all():
        sentences.append("All clients are always available.")
    else:
        sentences.append(
            f"{units.percent((visits >= 1).mean())} of visits that begin while a client is available end before it "
            "leaves."
        )
        sentences.append("Visits before it leaves: how many fit, one after the other, from such a moment on.")
    some = f", of {len(presence.clients):,} of the clients" if len(presence.clients) < statistics.clients else ""
    sentences.append(f"Available clients: at {TIMES} times within {units.duration(statistics.horizon_seconds)}{some}.")
    return [*sentences, *statistics.warnings]


def _steps(steps: NDArray[np.int64]) -> str:
    fewest, most = int(steps.min()), int(steps.max())
    return f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"


def _lossy(probability: NDArray[np.float64]) -> str:
    lossy = probability[probability > 0]
    if not len(lossy):
        return "No visit is lost on its way."
    mean = "" if lossy.min() == lossy.max() else " on average"
    return f"Lossy clients: {len(lossy):,}, which lose {units.percent(lossy.mean())} of their visits{mean}."


def _number(number: float) -> str:
    return "∞" if math.isinf(number) else f"{number:,.1f}".removesuffix(".0")
