"""Report of a comparison: a page that works offline, and figures as PNG."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from offbeat import units
from offbeat.report import plots
from offbeat.report.caption import caption
from offbeat.report.export import write_file
from offbeat.report.finding import finding
from offbeat.report.metrics import Measure
from offbeat.report.page.clients_data import client_data, participation_data, timeline_data
from offbeat.report.page.curve_data import curve_data, spends_privacy
from offbeat.report.page.settings_and_versions import configurations, differing_settings, origin, package_versions
from offbeat.report.plot_style import LineStyle, line_styles, png
from offbeat.report.staleness_bins import StalenessBins, staleness_bins
from offbeat.report.summary import SummaryRow, summarise
from offbeat.report.table import NOTHING, Cell, Line, cost_groups, main_lines, other_groups
from offbeat.report.tuning import COLUMNS, ReportedTuning
from offbeat.runs.directory import Run, read_labels
from offbeat.runs.settings import by_label, world_of
from offbeat.web.self_contained_page import file_text, render, script_of

_SCRIPTS = ("elements.js", "coinciding.js", "line_chart.js", "curves.js", "timeline.js", "tables.js", "start.js")


def page(runs: Sequence[Run], rows: Sequence[SummaryRow], title: str, command: str) -> str:
    """Return the page, which loads nothing; the same runs give the same text."""
    styles = line_styles(runs)
    tuning = ReportedTuning.of(runs, rows[0].measure)
    bins = staleness_bins(runs)
    return render(
        file_text("offbeat.report.page", "report.html"),
        file_text("offbeat.web", "uplot.css") + file_text("offbeat.report.page", "report.css") + _colours(styles),
        _script(),
        _data(runs, rows, styles),
        title=title,
        finding=finding(rows, tuning),
        tuning=tuning if tuning.is_any else None,
        tuning_columns=COLUMNS,
        origin=origin(runs),
        settings=differing_settings(runs),
        command=command,
        world=world_of(runs),
        labels=[
            {"name": label, "dashes": " ".join(f"{2.5 * part:g}" for part in s.dash)} for label, s in styles.items()
        ],
        results=_columns([main_lines(rows)]),
        costs=_columns(cost_groups(rows)),
        others=_columns(other_groups(rows)),
        caption=caption(rows),
        by_label=_by_label(runs),
        staleness=_panels(bins),
        bins=len(bins.edges) - 1,
        last_bin=int(bins.edges[-1] - 0.5),
        staleness_note=bins.note,
        configurations=configurations(runs),
        versions=package_versions(runs),
    )


def _data(runs: Sequence[Run], rows: Sequence[SummaryRow], styles: dict[str, LineStyle]) -> dict[str, Any]:
    return {
        "labels": [{"name": label, "dash": style.dash} for label, style in styles.items()],
        "curves": curve_data(runs, rows[0].target),
        "clients": client_data(runs, rows[0].measure),
        "participation": participation_data(runs),
        "timeline": timeline_data(runs),
    }


def _columns(groups: Sequence[Sequence[Line]]) -> list[dict[str, Any]]:
    return [
        {"name": line.name, "cells": line.cells, "begins_group": place == 0}
        for group in groups
        for place, line in enumerate(group)
    ]


def _by_label(runs: Sequence[Run]) -> list[Line]:
    """Return the accuracy by label of the examples, as a mean of the seeds.

    Empty if no run has measured it.
    """
    measured = [[read_labels(run) for run in group] for group in by_label(runs).values()]
    labels = sorted({int(label) for group in measured for seed in group for label in seed})
    return [
        Line(
            str(label),
            tuple(_mean_share([seed[str(label)] for seed in group if str(label) in seed]) for group in measured),
        )
        for label in labels
    ]


def _mean_share(values: Sequence[float]) -> Cell:
    if not values:
        return Cell(NOTHING)
    mean = float(np.mean(values))
    return Cell(units.percent(mean), mean)


def _panels(bins: StalenessBins) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    for label, histogram in bins.histograms.items():
        shares = histogram.shares
        largest = float(shares.max()) if len(shares) else 0.0
        bars = [
            {"title": f"{_versions(low, bins.width)}: {share:.1f} %", "height": round(96 * share / (largest or 1.0), 2)}
            for low, share in zip((bins.edges[:-1] + 0.5).astype(int).tolist(), shares.tolist(), strict=False)
        ]
        note = "no counted updates"
        if bars:
            note = f"mean {histogram.mean:.1f}, maximum {histogram.largest}, highest bar {largest:.0f} %"
        panels.append({"label": label, "note": note, "bars": bars})
    return panels


def _versions(low: int, width: int) -> str:
    return f"staleness {low}" if width == 1 else f"staleness {low} to {low + width - 1}"


def _colours(styles: dict[str, LineStyle]) -> str:
    light = "".join(f".line-{place}{{color:{style.colour}}}" for place, style in enumerate(styles.values()))
    dark = "".join(f".line-{place}{{color:{style.dark_colour}}}" for place, style in enumerate(styles.values()))
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"


def _script() -> str:
    licence = file_text("offbeat.web", "uplot.LICENSE")
    own = script_of(*(("offbeat.report.page", name) for name in _SCRIPTS))
    return f"/* uPlot\n\n{licence}*/\n{file_text('offbeat.web', 'uplot.js')}\n{own}"


def write_report(runs: Sequence[Run], folder: Path, title: str, command: str, target: float | None = None) -> Path:
    """Write ``folder/report.html`` and ``folder/plots/*.png``.

    The page shows the command that made it. ``target`` is that of the main measure; None for the target in the runs'
    configuration. Every finished run needs a readable ``versions.json``.
    """
    rows = summarise(runs, target)
    title = title.encode(errors="backslashreplace").decode()  # a folder's name need not be UTF-8
    content = page(runs, rows, title, command).encode("utf-8")
    for name, figure in _figures(runs, rows[0].measure, rows[0].target).items():
        write_file(folder / "plots" / f"{name}.png", png(figure))
    return write_file(folder / "report.html", content)


def _figures(runs: Sequence[Run], measure: Measure, target: float | None) -> dict[str, Figure]:
    name = re.sub(r"\W", "_", measure.name)
    figures = {
        f"{name}_over_time": plots.curves("seconds", runs, target),
        f"{name}_over_bytes": plots.curves("bytes", runs, target),
        "staleness": plots.staleness(runs),
    }
    if private := [run for run in runs if spends_privacy(run)]:
        figures[f"{name}_over_epsilon"] = plots.curves("epsilon", private, None)
    return figures
