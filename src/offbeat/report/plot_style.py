"""Style of figures and pages: sizes, grid, colours and dashes of algorithms."""

import io
import zlib
from collections import Counter
from collections.abc import Sequence, Set, Sized
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


# On white and on a dark page. Each pair is as far apart as six colours allow in OKLab, also for protanopes,
# deuteranopes and tritanopes, with a contrast of 3 to the page.
_COLOURS = (
    ("#1B68E0", "#4C80F8"),
    ("#DB7900", "#FA9A30"),
    ("#2B7A45", "#98F8B4"),
    ("#5B0A86", "#E2ACFF"),
    ("#7E0A12", "#E4534F"),
    ("#8C8C8C", "#8E959E"),
)
_ALWAYS = ("fedavg", "fedbuff", "fedasync", "fedfa", "scaffold", "mifa")  # each has its colour in every comparison
_DASHES = ((), (4.0, 1.6), (1.2, 1.2), (5.0, 1.4, 1.2, 1.4), (8.0, 2.0), (3.0, 1.2, 1.2, 1.2, 1.2, 1.2), (2.0, 3.0))


@dataclass(frozen=True)
class LineStyle:
    """The look of one label's line."""

    colour: str
    dark_colour: str  # on a dark page
    dash: tuple[float, ...]  # on and off, in widths of the line; empty for a solid line


def line_styles(runs: Sequence[Run]) -> dict[str, LineStyle]:
    """Return the style of each label.

    Algorithms have different colours while there are enough; labels of one algorithm share its colour. Labels of one
    colour differ in their dashes, in the order of the runs.
    """
    algorithms = {label: algorithm_of(group[0]) for label, group in by_label(runs).items()}
    places = _places(set(algorithms.values()))
    members: Counter[int] = Counter()
    styles: dict[str, LineStyle] = {}
    for label in sorted(algorithms, key=lambda label: algorithms[label] not in _ALWAYS):  # whose lines are solid
        place = places[algorithms[label]]
        styles[label] = LineStyle(*_COLOURS[place], _dash(members[place]))
        members[place] += 1
    return {label: styles[label] for label in algorithms}


def _places(algorithms: Set[str]) -> dict[str, int]:
    """Return the place of each algorithm's colour: its own, or one that fewer have."""
    places = {name: place for place, name in enumerate(_ALWAYS) if name in algorithms}
    builtin = [name for name in ALGORITHMS if name in algorithms]
    for name in [*builtin, *sorted(algorithms - set(builtin))]:  # so the user's own algorithm changes no colour
        own = zlib.crc32(name.encode()) % len(_COLOURS)
        following = [(own + step) % len(_COLOURS) for step in range(len(_COLOURS))]
        taken = Counter(places.values())
        places.setdefault(name, min(following, key=taken.__getitem__))
    return places


def _dash(number: int) -> tuple[float, ...]:
    return _DASHES[number] if number < len(_DASHES) else (number + 2.0, 2.0)
