"""Figure of a population: labels, duration of visits, availability."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter
from numpy.typing import NDArray

from offbeat import units
from offbeat.report.export import write_file
from offbeat.report.plot_style import GREY, INK, STYLE, WIDTH, png, tidy, title
from offbeat.report.population_statistics import PopulationStatistics, effective_labels, evenly
from offbeat.report.population_table import how_many, seconds

_CLIENTS = 100  # rows or columns of a panel; more would be too thin to see
_CLASSES = 100  # rows of the heat map, for the same reason
_TITLE = 70  # characters; more would not fit the page
_STEPS = [1, 2, 5, 10]  # between ticks
_BLUE = "#0072B2"
_LIGHT_BLUE = "#9CC3DE"
_AWAY = "#F0F0F0"
_TICKS = {
    **{10.0**power: f"{10.0**power:g} s" for power in range(-4, 2)},
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    36000.0: "10 h",
    **{86400 * 10.0**power: f"{10**power:,} d" for power in range(6)},
}


def write_population(statistics: PopulationStatistics, folder: Path) -> Path:
    """Draw the population into ``folder/population.png``; return the path."""
    return write_file(folder / "population.png", png(population_figure(statistics)))


@matplotlib.rc_context(STYLE)
def population_figure(statistics: PopulationStatistics) -> Figure:
    """Draw the panels, one above the other, with at most 100 evenly chosen clients."""
    classes = 0 if statistics.label_counts is None else statistics.label_counts.shape[1]
    heights = {
        "examples": 0.8,
        "labels": 0.0 if not classes else 1.1 if classes > _CLASSES else 0.6 + 0.13 * min(classes, 12),
        "visits": 1.7,
        "count": 0.9,
        "raster": 0.5 + 0.09 * min(max(statistics.clients, 5), 20),
    }
    rows = {name: height for name, height in heights.items() if height}
    figure = Figure(figsize=(WIDTH, sum(rows.values()) + 0.4 * len(rows) + 0.6), layout="constrained")
    panels: dict[str, Axes] = figure.subplot_mosaic([[name] for name in rows], height_ratios=list(rows.values()))
    for axes in panels.values():
        tidy(axes)
    _holdings(panels["examples"], panels.get("labels"), statistics)
    _visits(panels["visits"], statistics)
    _count(panels["count"], statistics)
    _raster(panels["raster"], statistics)
    figure.align_ylabels()
    name = statistics.title if len(statistics.title) <= _TITLE else statistics.title[: _TITLE - 1] + "…"
    title(figure, f"{name}: {how_many(statistics)} (seed {statistics.seed})")
    return figure


def _holdings(examples: Axes, labels: Axes | None, statistics: PopulationStatistics) -> None:
    """Draw the number of examples, and their labels; one column for each client."""
    counts = statistics.label_counts
    shares = None
    if counts is None or counts.shape[1] > _CLASSES:
        order, how = np.argsort(-statistics.examples, kind="stable"), "most examples first"
    else:
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        order, how = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1))), "sorted by their commonest label"
    drawn = evenly(order, _CLIENTS)
    _bars(examples, statistics.examples[drawn], GREY)
    examples.set_ylabel("examples")
    _heading(examples, "Examples" if labels is None else "Examples and labels")
    if labels is not None and shares is not None:
        _heat_map(labels, shares[drawn])
    elif labels is not None and counts is not None:
        held = counts[drawn]
        _bars(labels, (held > 0).sum(axis=1), _LIGHT_BLUE)
        _bars(labels, effective_labels(held), _BLUE)
        labels.set_ylabel("labels")
        labels.set_title("light: labels with any example, dark: effective number", loc="left", color=GREY)
    (labels or examples).set_xlabel(f"{_some(len(drawn), statistics)}, {how}")


def _heat_map(axes: Axes, shares: NDArray[np.float64]) -> None:
    """Draw the labels' shares ``(n, classes)``, with a column for each client."""
    colour_map = matplotlib.colormaps["Blues"]
    norm = PowerNorm(0.5, 0, 1)  # distinguishes 1 % from nothing, and ranges up to 100 %
    axes.imshow(shares.T, cmap=colour_map, norm=norm, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.yaxis.set_major_locator(MaxNLocator(10, steps=_STEPS, integer=True, min_n_ticks=1))
    axes.set_ylabel("label")
    axes.set_title("share of the client's examples", loc="left", color=GREY)
    axes.legend(
        handles=[
            Patch(facecolor=colour_map(float(norm(share))), edgecolor="#BBBBBB", label=units.level(share))
            for share in (0, 0.01, 0.1, 0.5, 1)
        ],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0.2,
        ncols=5,
        frameon=False,
        handlelength=1,
        handleheight=1,
        columnspacing=1,
        labelcolor=GREY,
    )


def _visits(axes: Axes, statistics: PopulationStatistics) -> None:
    """Draw a histogram over the clients for each part of a visit, and for all of it."""
    drawn = {**statistics.visit_parts, "visit": statistics.visit_seconds}
    positive = np.concatenate([values[values > 0] for values in drawn.values()])
    low, high = (positive.min() / 1.3, positive.max() * 1.3) if len(positive) else (0.1, 10.0)
    bins = round(np.clip(4 * np.sqrt(statistics.clients), 40, 80))
    edges = np.geomspace(low, high, bins + 1)
    for row, (values, colour) in enumerate(zip(drawn.values(), [*3 * [_LIGHT_BLUE], _BLUE], strict=True)):
        # A logarithmic axis has no 0: parts that take no time are at the left edge.
        values = np.clip(values, edges[0], edges[-1])
        bars = np.histogram(values, edges)[0]
        axes.stairs(-row + 0.8 * bars / bars.max(), edges, baseline=-row, fill=True, color=colour)
        axes.plot(2 * [np.median(values)], [-row, 0.8 - row], color=INK, linewidth=1.4)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [_TICKS[tick] for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(1 - len(drawn), 1)
    names = [f"{name}\nmedian {seconds(float(np.median(values)))}" for name, values in drawn.items()]
    axes.set_yticks([0.4 - row for row in range(len(drawn))], names)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("logarithmic; height: how many clients, scaled to each row's peak; line: median")
    _heading(axes, "How long a visit takes")


def _count(axes: Axes, statistics: PopulationStatistics) -> None:
    presence = statistics.presence
    unit, _ = units.time_unit(statistics.horizon_seconds)
    share = presence.share
    edges = np.linspace(0, statistics.horizon_seconds / unit, len(share) + 1)
    axes.stairs(share * statistics.clients, edges, fill=True, color=_BLUE, alpha=0.3)
    axes.stairs(share * statistics.clients, edges, color=_BLUE, linewidth=1.2, baseline=None)
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, 1.05 * statistics.clients)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=_STEPS, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel("available clients")
    axes.tick_params(labelbottom=False)
    _heading(axes, "Availability")
    least, mean, most = (units.percent(number) for number in (share.min(), share.mean(), share.max()))
    note = f"mean {mean}, {least} to {most}" if least != most else f"always {mean}"
    if len(presence.clients) < statistics.clients:
        note += f"; from {len(presence.clients):,} of the clients"
    axes.set_title(note, loc="right", color=GREY)


def _raster(axes: Axes, statistics: PopulationStatistics) -> None:
    presence = statistics.presence
    unit, name = units.time_unit(statistics.horizon_seconds)
    order = np.argsort(-presence.is_available.mean(axis=1), kind="stable")
    rows: NDArray[np.bool_] = presence.is_available[evenly(order, _CLIENTS)]
    axes.grid(visible=False)
    axes.imshow(
        rows,
        cmap=ListedColormap([_AWAY, _BLUE]),
        vmin=0,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
        extent=(0, statistics.horizon_seconds / unit, len(rows), 0),
    )
    axes.set_yticks([0.5, len(rows) - 0.5][: len(rows)], ["most available", "least available"][: len(rows)])
    axes.set_ylabel(_some(len(rows), statistics))
    axes.set_xlabel(f"virtual time ({name}); blue: available")


def _bars(axes: Axes, values: NDArray[np.int64] | NDArray[np.float64], colour: str) -> None:
    axes.bar(np.arange(len(values)), values, width=0.85, color=colour)
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xticks([])
    axes.yaxis.set_major_locator(MaxNLocator(3, steps=_STEPS, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontweight="bold")


def _some(drawn: int, statistics: PopulationStatistics) -> str:
    return f"{drawn:,} of {statistics.clients:,} clients" if drawn < statistics.clients else how_many(statistics)
