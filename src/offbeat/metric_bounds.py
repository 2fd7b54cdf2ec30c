"""Bounds of metrics: the values that they can have."""

import math
from collections.abc import Sequence
from typing import Any, cast

from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import is_number

Bounds = tuple[float, float]
"""The least and the largest value; either may be infinite."""

UNBOUNDED: Bounds = (-math.inf, math.inf)
AMOUNT: Bounds = (0.0, math.inf)  # such as times, counts and bytes
SHARE: Bounds = (0.0, 1.0)
KNOWN: dict[str, Bounds] = {
    "accuracy": SHARE,
    "macro_f1": SHARE,
    "iou": SHARE,
    "perplexity": (1.0, math.inf),
    "mse": AMOUNT,
    "mae": AMOUNT,
}
_ROUNDING = 1e-6  # of a value at a bound


def bounds_of(name: str, metric: object) -> Bounds:
    """Return a metric's bounds: known ones, or those of its attribute ``bounds``.

    Raises ``OffbeatError`` if the attribute is not a pair of numbers, the lower one first.
    """
    given: Any = getattr(metric, "bounds", None)
    if given is None:
        return KNOWN.get(name, UNBOUNDED)
    pair = list(cast("Sequence[object]", given)) if isinstance(given, Sequence) else []
    if len(pair) != 2 or not all(is_number(end) and end == end for end in pair) or not pair[0] < pair[1]:  # type: ignore[operator]
        raise OffbeatError(
            f"the metric {name}: its attribute bounds must be two numbers, the lower one first, such as (0, 1); "
            f"got {given!r}"
        )
    return float(given[0]), float(given[1])


def check_within(name: str, value: float, bounds: Bounds) -> None:
    """Raise ``OffbeatError`` if a metric has a value that it cannot have."""
    low, high = bounds
    if not low - _ROUNDING <= value <= high + _ROUNDING:
        raise OffbeatError(f"the metric {name} is {value:g}, outside its bounds, {low:g} to {high:g}: correct them")
