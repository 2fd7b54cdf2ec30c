"""The chart of a paper on the index: each statement's findings, for or against it."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from offbeat.report.export import write_file
from offbeat.report.plot_style import GREY, STYLE, WIDTH, png, tidy
from offbeat_studies.papers.figures.figure_result import DOTS_PER_INCH
from offbeat_studies.papers.figures.finding import Word
from offbeat_studies.papers.results.paper_page import CLASS_NAMES
from offbeat_studies.papers.results.statements import Statement

_COLOURS: dict[Word, str] = {
    "supported": "#1b7837",
    "not supported": "#888888",
    "contradicted": "#b2182b",
    "open": "#cccccc",
}
_FARTHEST = 8.0  # half-widths of an interval; what is farther is drawn here
_LONGEST = 56  # characters of a statement


def chart_name(page: str) -> str:
    """Return the file name of a paper's chart."""
    return f"summary-{page}.png"


@matplotlib.rc_context(STYLE)
def draw_statements(statements: Sequence[Statement], path: Path) -> Path:
    """Draw one row for each statement, a dot for each finding with an interval.

    A dot's place is the effect's distance from the claim's limit, in half-widths of its 95 % interval: beyond 1 the
    interval is on the claim's side, beyond −1 on the other. Without an interval there is no dot.
    """
    figure = Figure(figsize=(WIDTH, 0.7 + 0.2 * len(statements)), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    for row, one in enumerate(statements):
        for _, finding in one.findings:
            if finding.distance is not None and not one.is_outdated:
                place = max(-_FARTHEST, min(_FARTHEST, finding.distance))
                axes.plot([place], [row], "o", color=_COLOURS[finding.verdict], markersize=4.5)
    for limit in (-1, 0, 1):
        axes.axvline(limit, color=GREY, linewidth=0.6, linestyle="-" if limit == 0 else ":")
    texts = [one.text if len(one.text) <= _LONGEST else f"{one.text[: _LONGEST - 1]}…" for one in statements]
    axes.set_yticks(
        range(len(texts)),
        [f"{text} ({CLASS_NAMES[one.evidence]})" for text, one in zip(texts, statements, strict=True)],
    )
    axes.set_ylim(len(statements) - 0.5, -0.5)
    axes.set_xlim(-_FARTHEST - 0.5, _FARTHEST + 0.5)
    axes.set_xlabel("← against     half-widths of the interval     for →", loc="right")
    return write_file(path, png(figure, DOTS_PER_INCH))
