"""Chart of the study: uploads over displacement, and the best displacement."""

import math
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from offbeat.report.export import write_file
from offbeat.report.plot_style import GREY, STYLE, WIDTH, colours, png, tidy
from offbeat_studies.papers.displacement.branches import Study
from offbeat_studies.papers.displacement.curve import Curve
from offbeat_studies.papers.displacement.effects import best_displacement, fit
from offbeat_studies.papers.displacement.setting import Setting
from offbeat_studies.papers.figures.claim_effects import mean
from offbeat_studies.papers.figures.figure_result import DOTS_PER_INCH

_MARKERS = {"fedbuff": "o", "fedfa": "x", "fedasync": "s", "fedfa-params": "D"}


@matplotlib.rc_context(STYLE)
def draw(study: Study, path: Path) -> Path:
    """Draw uploads over D, a panel for each M, and the best D over τ_u."""
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    groups = list(dict.fromkeys((setting.kind, setting.size) for setting in study.reference))
    chosen = dict(zip(groups, colours(groups), strict=True))
    curve = fit(study, study.reference)
    concurrencies = study.section.at_work
    for axes, at_work in zip(panels, concurrencies, strict=False):
        _draw_uploads(axes, study, curve, at_work, chosen)
    for axes in panels[len(concurrencies) : -1]:
        axes.set_axis_off()
    _draw_best(panels[-1], study, chosen)
    panels[0].legend(frameon=False, fontsize=7.5, labelcolor="linecolor")
    return write_file(path, png(figure, DOTS_PER_INCH))


def _draw_uploads(axes: Axes, study: Study, curve: Curve, at_work: int, chosen: dict[tuple[str, int], str]) -> None:
    """Draw geometric means over the judging seeds; hollow where a run is censored."""
    tidy(axes)
    for setting in study.reference:
        if setting.at_work != at_work:
            continue
        colour, marker = chosen[setting.kind, setting.size], _MARKERS[setting.kind]
        points = study.of(setting)
        bounds = [mean([study.log_uploads(point, seed) for seed in study.section.seeds]) for point in points]
        label = setting.kind if setting.kind == "fedasync" else f"{setting.kind}, K = {setting.size}"
        d, uploads = [point.displacement for point in points], [math.exp(bound.low) for bound in bounds]
        whole = [bound.low == bound.high for bound in bounds]
        axes.plot(*_where(d, uploads, whole), marker, color=colour, markersize=4.5, label=label)
        censored = [not is_whole for is_whole in whole]
        axes.plot(*_where(d, uploads, censored), marker, color=colour, markersize=4.5, fillstyle="none", alpha=0.5)
        if setting.kind == "fedbuff":
            line = np.geomspace(d[0], d[-1], 50)
            fitted = [math.exp(curve.log_uploads(at * setting.delay, setting.delay)) for at in line]
            axes.plot(line, fitted, "-", color=colour, linewidth=0.9, alpha=0.7)
    axes.set_title(f"M = {at_work}: uploads over D, and the curve of all", loc="left", color=GREY)
    axes.set_ylim(top=1.1 * study.section.world.budget)
    _logarithmic(axes)


def _where(x: list[float], y: list[float], is_chosen: list[bool]) -> tuple[list[float], list[float]]:
    rows = [(a, b) for a, b, chosen in zip(x, y, is_chosen, strict=True) if chosen]
    return [a for a, _ in rows], [b for _, b in rows]


def _draw_best(axes: Axes, study: Study, chosen: dict[tuple[str, int], str]) -> None:
    """Draw each setting's best D, and the line through their mean with the power −1."""
    tidy(axes)
    means: list[tuple[float, float]] = []
    for setting in study.reference:
        if not setting.is_bounded:
            best = _mean_log_best(study, setting)
            means.append((math.log(setting.delay), best))
            axes.plot(
                [setting.delay],
                [math.exp(best)],
                _MARKERS[setting.kind],
                color=chosen[setting.kind, setting.size],
                markersize=4.5,
            )
    delays, bests = (math.fsum(column) / len(means) for column in zip(*means, strict=True))
    ends = min(delay for delay, _ in means), max(delay for delay, _ in means)
    axes.plot([math.exp(end) for end in ends], [math.exp(bests + delays - end) for end in ends], "-", color=GREY)
    axes.set_title("best D over τ_u, and a line of power −1", loc="left", color=GREY)
    _logarithmic(axes)


def _mean_log_best(study: Study, setting: Setting) -> float:
    seeds = study.section.seeds
    return math.fsum(math.log(best_displacement(study, setting, seed)) for seed in seeds) / len(seeds)


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
