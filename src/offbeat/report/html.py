"""Report of a comparison: one HTML file with embedded plots, and the plots as PNG."""

import base64
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2
import matplotlib
import tomli_w
from matplotlib.figure import Figure

from offbeat.errors import OffbeatError
from offbeat.report import plots, table
from offbeat.report.client_panels import client_panels, measured_by_clients
from offbeat.report.export import write_file
from offbeat.report.metrics import Measure
from offbeat.report.plot_style import png
from offbeat.report.summary import summarise
from offbeat.report.timeline import timeline
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label, world_of


@dataclass(frozen=True)
class _Plot:
    name: str
    alt: str
    figure: Figure

    def svg(self) -> str:
        """Return the figure as a data URI.

        In an image, matplotlib's ids cannot clash with those of another figure in the page.
        """
        # A fixed salt and no date, so that the same runs give the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": self.name, "svg.fonttype": "path"}):
            buffer = io.BytesIO()
            metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            self.figure.savefig(buffer, format="svg", dpi=150, metadata=metadata)
        return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def write_report(runs: Sequence[Run], folder: Path, title: str, command: str, target: float | None = None) -> Path:
    """Write ``folder/report.html`` and ``folder/plots/*.png``.

    The page shows the command that made it. ``target`` is that of the main measure; None for the target in the runs'
    configuration. Every finished run needs a readable ``versions.json``.
    """
    rows = summarise(runs, target)
    figures = _plots(runs, rows[0].measure, rows[0].target)
    page = _template().render(
        title=title,
        command=command,
        world=world_of(runs),
        rows=rows,
        groups=table.lines(rows),
        caption=table.caption(rows),
        plots=figures,
        configurations=_configurations(runs),
        versions=_versions(runs),
    )
    report = folder / "report.html"
    for plot in figures:
        write_file(folder / "plots" / f"{plot.name}.png", png(plot.figure))
    write_file(report, page.encode("utf-8"))
    return report


def _plots(runs: Sequence[Run], measure: Measure, target: float | None) -> list[_Plot]:
    labels = ", ".join(by_label(runs))
    name = re.sub(r"\W", "_", measure.name)
    return [
        _Plot(
            f"{name}_over_time",
            f"Line plot: test {measure.title} over virtual time for {labels}. The table has the final numbers.",
            plots.curves("seconds", runs, target),
        ),
        _Plot(
            f"{name}_over_bytes",
            f"Line plot: test {measure.title} over the bytes sent to and by all clients for {labels}.",
            plots.curves("bytes", runs, target),
        ),
        *_client_plots(runs, measure, name),
        *_privacy_plots(runs, measure, name),
        _Plot(
            "staleness",
            f"Histograms: staleness of the counted updates, one panel each for {labels}. The table has the means.",
            plots.staleness(runs),
        ),
        _Plot(
            "timeline",
            f"Time lines: when each client worked and whether its update was counted, unused or lost, "
            f"one panel each for {labels}.",
            timeline(runs),
        ),
    ]


def _client_plots(runs: Sequence[Run], measure: Measure, name: str) -> list[_Plot]:
    measured = measured_by_clients(runs, measure)
    if not measured:
        return []
    return [
        _Plot(
            f"{name}_on_clients",
            f"Line plots: {measure.title} on the clients' held-out examples over virtual time, with the 10th and 90th "
            f"percentile and the worst tenth, one panel each for {', '.join(by_label(measured))}.",
            client_panels(measured, measure),
        )
    ]


def _privacy_plots(runs: Sequence[Run], measure: Measure, name: str) -> list[_Plot]:
    private = [run for run in runs if "epsilon" in run.history and math.isfinite(run.history["epsilon"][-1])]
    if not private:
        return []
    return [
        _Plot(
            f"{name}_over_epsilon",
            f"Line plot: test {measure.title} over ε for {', '.join(by_label(private))}.",
            plots.curves("epsilon", private, None),
        )
    ]


def _configurations(runs: Sequence[Run]) -> dict[str, str]:
    """Return the configuration of each label as TOML, with the seeds of all its runs."""
    return {
        label: tomli_w.dumps({**group[0].config, "seeds": [run.seed for run in group]})
        for label, group in by_label(runs).items()
    }


def _versions(runs: Sequence[Run]) -> dict[str, str]:
    """Return the versions of each package, separated by commas if the runs differ."""
    versions: dict[str, list[str]] = {}
    for run in runs:
        path = run.path / "versions.json"
        try:
            content = {str(key): str(value) for key, value in json.loads(path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, AttributeError):
            if not run.finished:
                continue
            raise OffbeatError(f"cannot read {path}; run {run.label} with seed {run.seed} again") from None
        for package, version in content.items():
            known = versions.setdefault(package, [])
            if version not in known:
                known.append(version)
    return {package: ", ".join(known) for package, known in versions.items()}


def _template() -> jinja2.Template:
    text = resources.files("offbeat.report").joinpath("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text)
