"""Figures of a comparison: a measure over time and over bytes, and staleness.

Figures are made without pyplot, which keeps them in memory and has global state.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from offbeat import units
from offbeat.report.confidence_interval import half_width
from offbeat.report.metrics import Measure, cost, main_measure
from offbeat.report.plot_style import GREY, STYLE, WIDTH, colours, tidy, title
from offbeat.report.summary import counted_staleness
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label

_BAND = 3  # seeds; the interval of two is mostly wider than the plot
_BINS = 60  # at most, in a staleness histogram
_DRAWN_SHARE = 0.99  # of the updates; a few very stale ones would compress the rest


@dataclass(frozen=True)
class _End:
    x: float
    y: float
    label: str
    colour: str


# By cost: its name in the title, the label of its axis, and the function that returns its unit.
_AXES: dict[str, tuple[str, str, Callable[[float], tuple[float, str]] | None]] = {
    "seconds": ("virtual time", "virtual time ({unit})", units.time_unit),
    "bytes": ("bytes", "sent to and by all clients ({unit})", units.size_unit),
    "versions": ("versions", "version of the model", None),
    "updates": ("visits", "visits of clients", None),
    "epsilon": ("privacy spent", "ε of the client with the most participations (zero-out)", None),
}


@matplotlib.rc_context(STYLE)
def staleness(runs: Sequence[Run]) -> Figure:
    """Draw histograms of the staleness of counted updates, a panel for each algorithm.

    Each panel has its own scale: a synchronous algorithm has everything at 0, which would flatten the others.
    """
    groups = by_label(runs)
    stale = {label: np.concatenate([counted_staleness(run.events) for run in group]) for label, group in groups.items()}
    highest = int(max((values.max() for values in stale.values() if len(values)), default=0.0))
    drawn = max((math.ceil(np.quantile(v, _DRAWN_SHARE)) for v in stale.values() if len(v)), default=0)
    width = math.ceil((drawn + 1) / _BINS)
    edges = np.arange(0, drawn + width + 1, width) - 0.5  # bars stand over whole numbers

    figure = Figure(figsize=(WIDTH, 0.8 + 1.15 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), sharex=True, squeeze=False)[:, 0]
    for axes, colour, (label, values) in zip(panels, colours(groups), stale.items(), strict=True):
        tidy(axes)
        axes.set_title(label, loc="left", color=colour, fontweight="bold")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], min_n_ticks=3))
        if not len(values):
            axes.set_yticks([])
            axes.text(0.5, 0.4, "no counted updates", transform=axes.transAxes, ha="center", color=GREY)
            continue
        shares = 100 * np.histogram(values, edges)[0] / len(values)
        axes.stairs(shares, edges, fill=True, color=colour, alpha=0.3)
        axes.stairs(shares, edges, color=colour, linewidth=1.3)
        axes.set_ylim(0, 1.1 * shares.max() or 1)
        axes.set_title(f"mean {values.mean():.1f}, maximum {values.max():.0f}", loc="right", color=GREY)
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].set_xlim(-0.5 - 0.01 * edges[-1], max(edges[-1], 4.5))
    note = "staleness (versions made during the visit"
    if width > 1:
        note += f"; bars of {width}"
    if highest > edges[-1]:
        note += "; the largest are beyond the edge"
    panels[-1].set_xlabel(note + ")")
    figure.supylabel("share of counted updates", fontsize=STYLE["axes.labelsize"])
    title(figure, "Staleness")
    return figure


@matplotlib.rc_context(STYLE)
def curves(over: str, runs: Sequence[Run], target: float | None, measure: Measure | None = None) -> Figure:
    """Draw a measure, by default the main one, over a cost: a key of ``_AXES``."""
    groups = by_label(runs)
    measure = measure or main_measure(runs)
    name, x_label, unit_of = _AXES[over]
    right = max(cost(over, run).max() for run in runs)
    unit, unit_name = unit_of(right) if unit_of else (1.0, "")
    right = right / unit
    scale = 100.0 if measure.is_share else 1.0
    figure = Figure(figsize=(WIDTH, 4.1), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    ends: list[_End] = []
    bands: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], str]] = []
    for colour, (label, group) in zip(colours(groups), groups.items(), strict=True):
        lines = [(cost(over, run) / unit, scale * _finite(run.history[measure.name])) for run in group]
        xs, seeds = together(lines)
        mean = seeds.mean(axis=0)
        if len(lines) >= _BAND:
            points = np.concatenate(lines, axis=1).T
            axes.update_datalim(points[np.isfinite(points).all(axis=1)])
            bands.append((xs, mean, half_width(seeds.std(axis=0, ddof=1), len(lines)), colour))
        elif len(lines) > 1:
            for line in lines:
                axes.plot(*line, color=colour, linewidth=0.7, alpha=0.45)
        axes.plot(xs, mean, color=colour, linewidth=2, label=label)
        known = np.flatnonzero(np.isfinite(mean))
        if len(known):
            end = _End(float(xs[known[-1]]), float(mean[known[-1]]), label, colour)
            axes.plot(end.x, end.y, "o", color=colour, markersize=4.5, clip_on=False)
            ends.append(end)
    axes.set_title(_note([len(group) for group in groups.values()]), loc="right", color=GREY)
    axes.set_xlim(0, right or 1)
    axes.set_xlabel(x_label.format(unit=unit_name))
    axes.set_ylabel(f"test {measure.title}")
    if measure.is_share:
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
    if target is not None:
        _draw_target(axes, scale * target, measure.at(target))
    y_limits = axes.get_ylim()
    for xs, mean, half, colour in bands:
        axes.fill_between(xs, mean - half, mean + half, color=colour, alpha=0.16, linewidth=0, zorder=1.5)
    axes.set_ylim(y_limits)  # the limits of the seeds: the interval of a few is often far wider
    if len(ends) == len(groups) and all(end.x > 0.85 * right for end in ends):
        _label_ends(axes, ends)
    else:  # a label in the middle of the plot would cover other curves
        corner = "lower right" if measure.higher_is_better else "upper right"
        axes.legend(loc=corner, frameon=False, labelcolor="linecolor", prop={"weight": "bold"})
    title(figure, f"{measure.title[:1].upper()}{measure.title[1:]} over {name}")
    return figure


def _note(seeds: Sequence[int]) -> str:
    parts: list[str] = []
    if any(1 < number < _BAND for number in seeds):
        parts.append("thin: one seed")
    if any(number > 1 for number in seeds):
        parts.append("bold: mean of the seeds")
    if any(number >= _BAND for number in seeds):
        parts.append("shaded: its 95 % confidence interval")
    return ", ".join(parts)


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace infinity by NaN, which is not drawn and does not stretch the axis."""
    return np.where(np.isfinite(values), values, np.nan)


def together(
    curves: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return common sample points of curves, ``(n,)``, and values, ``(curves, n)``."""
    xs = np.unique(np.concatenate([x for x, _ in curves]))
    known = (xs >= max(x[0] for x, _ in curves)) & (xs <= min(x[-1] for x, _ in curves))
    if known.any():
        xs = xs[known]
    return xs, np.stack([np.interp(xs, x, y) for x, y in curves])


def _draw_target(axes: Axes, target: float, name: str) -> None:
    axes.axhline(target, color=GREY, linestyle=":", linewidth=1.3)
    axes.annotate(
        f"target {name}",
        (0, target),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        color=GREY,
    )


def _label_ends(axes: Axes, ends: Iterable[_End]) -> None:
    """Write each curve's label to the right of its end."""
    low, high = axes.get_ylim()
    ordered = sorted(ends, key=lambda end: end.y)
    heights = _apart([end.y for end in ordered], gap=0.055 * (high - low))  # a line of text
    for end, y in zip(ordered, heights, strict=True):
        axes.annotate(
            end.label,
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=end.colour,
            fontweight="bold",
            annotation_clip=False,
        )


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Move ascending values as little as possible until they are ``gap`` apart."""
    blocks: list[list[float]] = []  # of values that touch; minus i gaps, the values of a block become equal
    for index, value in enumerate(values):
        blocks.append([value - index * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [place + index * gap for index, place in enumerate(fmean(block) for block in blocks for _ in block)]
