"""Report of a comparison: a page that one explores, and figures as PNG."""

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from offbeat.report import plots
from offbeat.report.export import write_file
from offbeat.report.metrics import Measure
from offbeat.report.page.curve_data import spends_privacy
from offbeat.report.page.page import page
from offbeat.report.plot_style import png
from offbeat.report.summary import summarise
from offbeat.runs.directory import Run


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
