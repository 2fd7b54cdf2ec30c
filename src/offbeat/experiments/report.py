"""The report of a comparison: one HTML file that opens anywhere, and its plots as PNG."""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2
import matplotlib
import tomli_w
from matplotlib.figure import Figure

from offbeat.errors import OffbeatError
from offbeat.experiments import plots, table
from offbeat.experiments.run_directory import Run
from offbeat.experiments.summary import by_label, summarise, world_of
from offbeat.experiments.timeline import timeline


@dataclass(frozen=True)
class _Plot:
    name: str
    alt: str
    figure: Figure

    def svg(self) -> str:
        """Return the figure as a data URI.

        As an image of its own, not as part of the page: matplotlib's ids then cannot clash with another figure's.
        """
        # A fixed salt and no date: the same runs give the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": self.name, "svg.fonttype": "path"}):
            data = _save(self.figure, "svg", dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return "data:image/svg+xml;base64," + base64.b64encode(data).decode("ascii")

    def png(self) -> bytes:
        return _save(self.figure, "png", {"Software": None})


def write_report(runs: Sequence[Run], folder: Path, title: str, target_accuracy: float | None, command: str) -> Path:
    """Write ``folder/report.html`` and ``folder/plots/*.png``.

    Args:
        runs: At least one; one for each label and seed.
        folder: Made if it is not there.
        title: The report's heading.
        target_accuracy: 0 … 1, or None.
        command: What the user typed, so that a reader can do it again.

    Returns:
        The path of the report.

    Raises:
        OffbeatError: The folder cannot be written, or a run has no readable ``versions.json``.
    """
    rows = summarise(runs, target_accuracy)
    figures = _plots(runs, target_accuracy)
    page = _template().render(
        title=title,
        command=command,
        world=world_of(runs),
        rows=rows,
        groups=table.measures(rows),
        caption=table.caption(rows),
        plots=figures,
        configurations=_configurations(runs),
        versions=_versions(runs),
    )
    report = folder / "report.html"
    try:
        (folder / "plots").mkdir(parents=True, exist_ok=True)
        for plot in figures:
            _write(folder / "plots" / f"{plot.name}.png", plot.png())
        _write(report, page.encode("utf-8"))
    except OSError as error:
        raise OffbeatError(
            f"cannot write the report into {folder}: {error.strerror}; free some space or choose another folder"
        ) from None
    return report


def _plots(runs: Sequence[Run], target_accuracy: float | None) -> list[_Plot]:
    who = ", ".join(by_label(runs))
    return [
        _Plot(
            "accuracy_over_time",
            f"Line plot: test accuracy over virtual time for {who}. The table has the final numbers.",
            plots.accuracy_over_time(runs, target_accuracy),
        ),
        _Plot(
            "accuracy_over_bytes",
            f"Line plot: test accuracy over the bytes sent to and by all clients for {who}.",
            plots.accuracy_over_bytes(runs, target_accuracy),
        ),
        _Plot(
            "staleness",
            f"Histograms: staleness of the counted updates, one panel each for {who}. The table has the means.",
            plots.staleness(runs),
        ),
        _Plot(
            "timeline",
            f"Time lines: when each client worked and whether its update was counted, unused or lost, "
            f"one panel each for {who}.",
            timeline(runs),
        ),
    ]


def _configurations(runs: Sequence[Run]) -> dict[str, str]:
    """The configuration of each label as TOML; its runs differ in the seed alone, so their seeds are put together."""
    return {
        label: tomli_w.dumps({**group[0].config, "seeds": [run.seed for run in group]})
        for label, group in by_label(runs).items()
    }


def _versions(runs: Sequence[Run]) -> dict[str, str]:
    """The versions of each package; several where the runs were made with different ones."""
    versions: dict[str, list[str]] = {}
    for run in runs:
        path = run.path / "versions.json"
        try:
            content: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise OffbeatError(f"cannot read {path}; run {run.label} with seed {run.seed} again") from None
        for package, version in content.items():
            known = versions.setdefault(package, [])
            if version not in known:
                known.append(version)
    return {package: ", ".join(known) for package, known in versions.items()}


def _template() -> jinja2.Template:
    text = resources.files("offbeat.experiments").joinpath("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text)


def _save(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> None:
    """Write under another name first, so that what stands at ``path`` is always whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
