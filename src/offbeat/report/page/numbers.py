"""Numbers for a page: few enough and short enough for what a screen shows."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_DIGITS = 5  # significant; a screen shows three or four


def thinned(number: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` of ``number`` indices, with both ends.

    One half is spread evenly. The other half is spread evenly over the logarithm, for logarithmic axes.
    """
    if number <= most:
        return np.arange(number)
    even = np.linspace(0, number - 1, most // 2)
    early = np.geomspace(1, number, most - most // 2) - 1
    return np.unique(np.concatenate([even, early]).round().astype(np.int64))


def short(values: Iterable[float]) -> list[float | int | None]:
    """Return rounded values for JSON; None for those that are not finite."""
    return [_short(value) for value in np.asarray(values, dtype=np.float64).tolist()]


def _short(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
