"""Style of figures and pages: sizes, grid, colours and dashes of algorithms."""

import io
import zlib
from collections import Counter
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from offbeat.algorithms import ALGORITHMS
from offbeat.runs.directory import Run
from offbeat.runs.settings import algorithm_of, by_label

WIDTH = 7.2  # inches
INK = "#222222"
GREY = "#666666"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are the same everywhere
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "figure.facecolor": "white",
    "axes.facecolor": "white",
}

# Okabe and Ito's palette, which colour-blind readers can tell apart, without the yellow, too pale on white.
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")


def colours(labels: Sized) -> list[str]:
    """Return a colour for each label by its position; see also ``line_styles``."""
    return list(islice(cycle(_PALETTE), len(labels)))


def matplotlib_dashes(dash: Sequence[float]) -> Any:
    """Return a line style with these lengths, which are in widths of the line."""
    return (0, tuple(dash)) if dash else "-"


def tidy(axes: Axes) -> None:
    """Remove frame and ticks, and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#BBBBBB")
    axes.grid(color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    # Set here, because the style no longer applies when the figure is saved, and ticks are made.
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK, labelfontfamily="DejaVu Sans")


def png(figure: Figure, dpi: int = 150) -> bytes:
    """Return the figure as a PNG file's content; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def title(figure: Figure, text: str) -> None:
    """Put the title at the left edge."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=11, fontweight="bold")


# On white and, lighter, on a dark page: neighbours differ in hue and in lightness, for colour-blind readers.
_COLOURS = (
    ("#0072B2", "#4FA9EC"),
    ("#D55E00", "#FF9350"),
    ("#009E73", "#41CC9B"),
    ("#B83E8B", "#EE7FC1"),
    ("#A87A00", "#E3B341"),
    ("#6A3D9A", "#B18AE8"),
    ("#0090B0", "#4CC8E6"),
    ("#C1272D", "#FF7B78"),
    ("#5F8420", "#A6CC5C"),
    ("#4053D3", "#8C9BFF"),
    ("#7A4A2B", "#C8946F"),
    ("#E0559A", "#FF94C6"),
    ("#1B5E45", "#6DB093"),
    ("#6E7781", "#A9B3BE"),
    ("#8E2F5A", "#D4769F"),
    ("#8C7BD8", "#BDB0FA"),
)
_DASHES = ((), (4.0, 1.6), (1.2, 1.2), (5.0, 1.4, 1.2, 1.4), (8.0, 2.0), (3.0, 1.2, 1.2, 1.2, 1.2, 1.2), (2.0, 3.0))


@dataclass(frozen=True)
class LineStyle:
    """The look of one label's line."""

    colour: str
    dark_colour: str  # on a dark page
    dash: tuple[float, ...]  # on and off, in widths of the line; empty for a solid line


def line_styles(runs: Sequence[Run]) -> dict[str, LineStyle]:
    """Return the style of each label.

    The colour is that of its algorithm, by the algorithm's place in the registry. Labels of one colour differ in
    their dashes, in the order of the runs.
    """
    places = {name: place for place, name in enumerate(ALGORITHMS)}
    members: Counter[int] = Counter()
    styles: dict[str, LineStyle] = {}
    for label, group in by_label(runs).items():
        name = algorithm_of(group[0])
        # The user's own algorithm is not in the registry.
        place = places.get(name, len(places) + zlib.crc32(name.encode())) % len(_COLOURS)
        styles[label] = LineStyle(*_COLOURS[place], _DASHES[members[place] % len(_DASHES)])
        members[place] += 1
    return styles
