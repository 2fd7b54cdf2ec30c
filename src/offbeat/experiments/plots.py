"""The figures of a comparison: accuracy over time and over bytes, and staleness.

Figures are made without pyplot, which would keep them for ever and depend on who drew before.
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

from offbeat.experiments import units
from offbeat.experiments.plot_style import GREY, STYLE, WIDTH, colours, tidy, title
from offbeat.experiments.run_directory import Run
from offbeat.experiments.summary import by_label, counted_staleness

_BINS = 60  # at most, in a staleness histogram
_DRAWN_SHARE = 0.99  # of the updates; a few very late ones must not squeeze the rest against the axis


@dataclass(frozen=True)
class _End:
    x: float
    y: float  # percent
    label: str
    colour: str


Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


@matplotlib.rc_context(STYLE)
def accuracy_over_time(runs: Sequence[Run], target_accuracy: float | None) -> Figure:
    """Draw the accuracy on the test set over virtual time, one colour an algorithm."""
    unit, name = units.time_unit(max(run.history["seconds"].max() for run in runs))
    return _accuracy(
        runs,
        lambda run: run.history["seconds"] / unit,
        f"virtual time ({name})",
        "Accuracy over virtual time",
        target_accuracy,
    )


@matplotlib.rc_context(STYLE)
def accuracy_over_bytes(runs: Sequence[Run], target_accuracy: float | None) -> Figure:
    """Draw the accuracy on the test set over what all clients received and sent."""
    unit, name = units.size_unit(max(_traffic(run).max() for run in runs))
    return _accuracy(
        runs,
        lambda run: _traffic(run) / unit,
        f"sent to and by all clients ({name})",
        "Accuracy over bytes",
        target_accuracy,
    )


@matplotlib.rc_context(STYLE)
def staleness(runs: Sequence[Run]) -> Figure:
    """Draw how stale the counted updates of each algorithm were, all its seeds together.

    Each algorithm has its own panel and scale: one that waits has everything at 0, which would flatten the others.
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
    note = "staleness (versions made meanwhile"
    if width > 1:
        note += f"; bars of {width}"
    if highest > edges[-1]:
        note += "; the stalest are beyond the edge"
    panels[-1].set_xlabel(note + ")")
    figure.supylabel("share of counted updates", fontsize=STYLE["axes.labelsize"])
    title(figure, "Staleness")
    return figure


def _accuracy(
    runs: Sequence[Run],
    x: Callable[[Run], NDArray[np.float64]],
    x_label: str,
    heading: str,
    target_accuracy: float | None,
) -> Figure:
    groups = by_label(runs)
    figure = Figure(figsize=(WIDTH, 4.1), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    ends: list[_End] = []
    right = max(x(run).max() for run in runs)
    for colour, (label, group) in zip(colours(groups), groups.items(), strict=True):
        curves = [(x(run), 100 * run.history["accuracy"]) for run in group]
        if len(curves) > 1:
            for curve in curves:
                axes.plot(*curve, color=colour, linewidth=0.7, alpha=0.45)
            axes.set_title("thin: one seed, bold: mean of the seeds", loc="right", color=GREY)
        xs, ys = _mean(curves)
        axes.plot(xs, ys, color=colour, linewidth=2, label=label)
        axes.plot(xs[-1], ys[-1], "o", color=colour, markersize=4.5, clip_on=False)
        ends.append(_End(float(xs[-1]), float(ys[-1]), label, colour))
    axes.set_xlim(0, right or 1)
    axes.set_xlabel(x_label)
    axes.set_ylabel("test accuracy")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
    if target_accuracy is not None:
        _draw_target(axes, 100 * target_accuracy)
    if all(end.x > 0.85 * right for end in ends):
        _label_ends(axes, ends)
    else:  # a name in the middle of the plot would lie on other curves
        axes.legend(loc="lower right", frameon=False, labelcolor="linecolor", prop={"weight": "bold"})
    title(figure, heading)
    return figure


def _mean(curves: Sequence[Curve]) -> Curve:
    """The mean of curves that were sampled at different places, where all of them are known."""
    xs = np.unique(np.concatenate([x for x, _ in curves]))
    known = (xs >= max(x[0] for x, _ in curves)) & (xs <= min(x[-1] for x, _ in curves))
    if known.any():
        xs = xs[known]
    return xs, np.mean([np.interp(xs, x, y) for x, y in curves], axis=0)


def _draw_target(axes: Axes, target: float) -> None:
    axes.axhline(target, color=GREY, linestyle=":", linewidth=1.3)
    axes.annotate(
        f"target {target:.6g} %",
        (0, target),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        color=GREY,
    )


def _label_ends(axes: Axes, ends: Iterable[_End]) -> None:
    """Write each curve's name to the right of its end."""
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
    """Move ascending values as little as possible until neighbours are at least ``gap`` apart."""
    blocks: list[list[float]] = []  # values that touch; less i gaps, those of one block are to be equal
    for index, value in enumerate(values):
        blocks.append([value - index * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [place + index * gap for index, place in enumerate(fmean(block) for block in blocks for _ in block)]


def _traffic(run: Run) -> NDArray[np.float64]:
    return (run.history["bytes_down"] + run.history["bytes_up"]).astype(np.float64)
