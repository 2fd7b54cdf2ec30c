"""Figures of a comparison: a measure over time and over bytes, and staleness.

Figures are made without pyplot, which keeps them in memory and has global state.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from offbeat.report.available_share import available_share
from offbeat.report.coinciding import take_turns
from offbeat.report.curves import (
    BAND,
    MeanCurve,
    cost_axis,
    has_diverged,
    mean_curve,
    measure_title,
    seed_curve,
    who_diverged,
)
from offbeat.report.metrics import Measure, main_measure
from offbeat.report.plot_style import GREY, INK, STYLE, WIDTH, line_styles, matplotlib_dashes, tidy, title
from offbeat.report.staleness_bins import staleness_bins
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label


@dataclass(frozen=True)
class _End:
    x: float
    y: float
    label: str
    colour: str


@matplotlib.rc_context(STYLE)
def staleness(runs: Sequence[Run]) -> Figure:
    """Draw histograms of the staleness of counted updates, a panel for each algorithm.

    Each panel has its own scale: a synchronous algorithm has everything at 0, which would flatten the others.
    """
    bins = staleness_bins(runs)
    edges = bins.edges
    styles = line_styles(runs)
    figure = Figure(figsize=(WIDTH, 0.8 + 1.15 * len(styles)), layout="constrained")
    panels = figure.subplots(len(styles), sharex=True, squeeze=False)[:, 0]
    for axes, (label, histogram) in zip(panels, bins.histograms.items(), strict=True):
        colour = styles[label].colour
        tidy(axes)
        axes.set_title(label, loc="left", color=colour, fontweight="bold")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], min_n_ticks=3))
        if not len(histogram.shares):
            axes.set_yticks([])
            axes.text(0.5, 0.4, "no counted updates", transform=axes.transAxes, ha="center", color=GREY)
            continue
        axes.stairs(histogram.shares, edges, fill=True, color=colour, alpha=0.3)
        axes.stairs(histogram.shares, edges, color=colour, linewidth=1.3)
        axes.set_ylim(0, 1.1 * histogram.shares.max() or 1)
        axes.set_title(f"mean {histogram.mean:.1f}, maximum {histogram.largest}", loc="right", color=GREY)
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].set_xlim(-0.5 - 0.01 * edges[-1], max(edges[-1], 4.5))
    panels[-1].set_xlabel(bins.note)
    figure.supylabel("share of counted updates", fontsize=STYLE["axes.labelsize"])
    title(figure, "Staleness")
    return figure


@matplotlib.rc_context(STYLE)
def curves(over: str, runs: Sequence[Run], target: float | None, measure: Measure | None = None) -> Figure:
    """Draw a measure, by default the main one, over a cost: see ``cost_axis``."""
    groups = by_label(runs)
    measure = measure or main_measure(runs)
    styles = line_styles(runs)
    axis = cost_axis(over, runs)
    scale = 100.0 if measure.is_share else 1.0
    figure = Figure(figsize=(WIDTH, 4.1), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    limits = _limits([seed_curve(run, measure, over, axis.unit)[1] for run in runs if not has_diverged(run)])
    ends: list[_End] = []
    bands: list[tuple[MeanCurve, str]] = []
    for label, group in groups.items():
        colour, dashes = styles[label].colour, matplotlib_dashes(styles[label].dash)
        lines = [seed_curve(run, measure, over, axis.unit) for run in group]
        curve = mean_curve(lines, measure)
        if len(lines) >= BAND:
            points = np.concatenate(lines, axis=1).T
            axes.update_datalim(points[np.isfinite(points).all(axis=1)])
            bands.append((curve, colour))
        elif len(lines) > 1:
            for line in lines:
                axes.plot(*line, color=colour, linestyle=dashes, linewidth=0.7, alpha=0.45)
        axes.plot(curve.xs, curve.mean, color=colour, linestyle=dashes, linewidth=2, label=label)
        known = np.flatnonzero(np.isfinite(curve.mean))
        if len(known):
            end = _End(float(curve.xs[known[-1]]), float(curve.mean[known[-1]]), label, colour)
            if any(map(has_diverged, group)) and not limits[0] <= end.y <= limits[1]:
                continue
            axes.plot(end.x, end.y, "o", color=colour, markersize=4.5, clip_on=False)
            ends.append(end)
    available = available_share(runs, axis.unit * axis.end) if over == "seconds" else None
    if available:
        for begin, end, share in zip(available.edges, available.edges[1:], available.shares, strict=False):
            axes.axvspan(begin / axis.unit, end / axis.unit, color=INK, alpha=0.13 * share, linewidth=0, zorder=0)
    axes.set_title(_note([len(group) for group in groups.values()]), loc="right", color=GREY)
    axes.set_xlim(0, axis.end or 1)
    axes.set_xlabel(f"{axis.title}; grey: clients are available" if available else axis.title)
    axes.set_ylabel(measure_title(measure))
    if measure.is_share:
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
    if target is not None:
        _draw_target(axes, scale * target, measure.at(target))
    diverged = who_diverged(runs)
    if diverged and np.isfinite(limits).all():
        axes.set_ylim(*limits)
        axes.set_xlabel(f"{axes.get_xlabel()}\n{diverged}")
    y_limits = axes.get_ylim()
    for curve, colour in bands:
        axes.fill_between(curve.xs, curve.low, curve.high, color=colour, alpha=0.16, linewidth=0, zorder=1.5)
    axes.set_ylim(y_limits)  # the limits of the seeds: the interval of a few is often far wider
    take_turns(axes)
    if len(ends) == len(groups) and all(end.x > 0.85 * axis.end for end in ends):
        _label_ends(axes, ends)
    else:  # a label in the middle of the plot would cover other curves
        corner = "lower right" if measure.higher_is_better else "upper right"
        axes.legend(loc=corner, frameon=False, labelcolor="linecolor", prop={"weight": "bold"})
    title(figure, f"{measure.title[:1].upper()}{measure.title[1:]} over {axis.name}")
    return figure


def _note(seeds: Sequence[int]) -> str:
    parts: list[str] = []
    if any(1 < number < BAND for number in seeds):
        parts.append("thin: one seed")
    if any(number > 1 for number in seeds):
        parts.append("bold: mean of the seeds")
    if any(number >= BAND for number in seeds):
        parts.append("shaded: its 95 % confidence interval")
    return ", ".join(parts)


def _limits(curves: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Return the range of the curves with some space; all numbers without curves."""
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves]) if curves else np.zeros(0)
    if not len(values):
        return -np.inf, np.inf
    space = 0.05 * float(values.max() - values.min()) or 1.0
    return float(values.min()) - space, float(values.max()) + space


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
