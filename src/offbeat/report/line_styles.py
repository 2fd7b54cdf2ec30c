"""Colours and dashes of algorithms: the same in every figure and on every page."""

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from offbeat.algorithms import ALGORITHMS
from offbeat.runs.directory import Run
from offbeat.runs.settings import algorithm_of, by_label

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
