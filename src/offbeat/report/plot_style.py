"""Style of all figures: sizes, colours, spines and grid."""

import io
from collections.abc import Sequence, Sized
from itertools import cycle, islice
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
