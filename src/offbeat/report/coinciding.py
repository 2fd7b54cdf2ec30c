"""Curves of a figure that coincide, drawn in turns so that each is seen."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

_NEAR = 0.01  # of the figure's height
_MOSTLY = 0.8  # of the width that two curves share
_TURN = 3.5  # widths of the line


def take_turns(axes: Axes) -> None:
    """Dash the labelled lines that lie upon each other nearly everywhere."""
    low, high = axes.get_ylim()
    groups: list[list[Line2D]] = []
    for line in axes.get_lines():
        if str(line.get_label()).startswith("_"):
            continue
        group = next((one for one in groups if _coincide(one[0], line, _NEAR * abs(high - low))), None)
        if group is None:
            groups.append([line])
        else:
            group.append(line)
    for group in groups:
        _dash(group)


def _dash(lines: Sequence[Line2D]) -> None:
    for place, line in enumerate(lines if len(lines) > 1 else ()):
        line.set_linestyle((-place * _TURN, (_TURN, (len(lines) - 1) * _TURN)))
        line.set_dash_capstyle("butt")


def _coincide(one: Line2D, other: Line2D, near: float) -> bool:
    curves = [np.asarray(line.get_xydata(), np.float64) for line in (one, other)]
    if not all(map(len, curves)):
        return False
    begin, end = max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves)
    if begin >= end:
        return False
    xs = np.linspace(begin, end, 101)
    first, second = (np.interp(xs, curve[:, 0], curve[:, 1]) for curve in curves)
    return bool(np.mean(np.abs(first - second) <= near) >= _MOSTLY)  # NaN is not near
