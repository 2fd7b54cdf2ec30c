"""Figure of the clients' own evaluations: their mean and their tenths over time."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray

from offbeat import units
from offbeat.client_metrics import column
from offbeat.report.line_styles import line_styles
from offbeat.report.mean_curves import together
from offbeat.report.metrics import Measure
from offbeat.report.plot_style import GREY, STYLE, WIDTH, tidy, title
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label

_DRAWN = ("mean", "p10", "p90", "worst")


def measured_by_clients(runs: Sequence[Run], measure: Measure) -> list[Run]:
    """Return the runs in which clients have measured it."""
    name = column(measure.name, "mean")
    return [run for run in runs if name in run.history and np.isfinite(run.history[name]).any()]


@matplotlib.rc_context(STYLE)
def client_panels(runs: Sequence[Run], measure: Measure) -> Figure:
    """Draw a measure over the clients, a panel for each algorithm, over virtual time.

    The line is the mean, the band reaches from the 10th to the 90th percentile, the dotted line is the worst tenth.
    Each is the mean of the seeds.
    """
    groups = by_label(runs)
    styles = line_styles(runs)
    last = max(run.history["seconds"].max() for run in runs)
    unit, unit_name = units.time_unit(last)
    scale = 100.0 if measure.is_share else 1.0
    figure = Figure(figsize=(WIDTH, 0.8 + 1.7 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, group) in zip(panels, groups.items(), strict=True):
        colour = styles[label].colour
        tidy(axes)
        axes.set_title(label, loc="left", color=colour, fontweight="bold")
        curves = {name: _mean_of_seeds(group, column(measure.name, name), unit) for name in _DRAWN}
        xs, low = curves["p10"]
        axes.fill_between(xs, scale * low, scale * curves["p90"][1], color=colour, alpha=0.2, linewidth=0)
        axes.plot(xs, scale * curves["mean"][1], color=colour, linewidth=2)
        axes.plot(xs, scale * curves["worst"][1], color=colour, linewidth=1.3, linestyle=":")
        if measure.is_share:
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g} %"))
    note = "bold: mean of the clients, shaded: 10th to 90th percentile, dotted: worst tenth"
    panels[0].set_title(note, loc="right", color=GREY)
    panels[-1].set_xlim(0, last / unit or 1)
    panels[-1].set_xlabel(f"virtual time ({unit_name})")
    figure.supylabel(f"{measure.title} on clients", fontsize=STYLE["axes.labelsize"])
    title(figure, f"{measure.title[:1].upper()}{measure.title[1:]} on the clients' held-out examples")
    return figure


def _mean_of_seeds(runs: Sequence[Run], name: str, unit: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    lines: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for run in runs:
        is_known = np.isfinite(run.history[name])  # nobody was available at the others
        lines.append((run.history["seconds"][is_known] / unit, run.history[name][is_known]))
    xs, seeds = together(lines)
    return xs, seeds.mean(axis=0)
