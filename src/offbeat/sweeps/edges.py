"""Best values at an end of what was tried: better ones may lie beyond."""

from typing import Any

from offbeat_core.number_checks import is_number

from offbeat.sweeps.importance import place
from offbeat.sweeps.search_space import Choices, Values

_NEAR = 0.05  # of a range, at either end


def edge(values: Values, best: Any) -> str:
    """Return the end that a value lies at: ``lower``, ``upper`` or empty.

    A choice has ends if it is of three numbers or more.
    """
    if isinstance(values, Choices):
        if len(values.values) < 3 or not all(map(is_number, values.values)):
            return ""
        return "lower" if best == min(values.values) else "upper" if best == max(values.values) else ""
    if values.whole:
        return "lower" if best == values.low else "upper" if best == values.high else ""
    where = place(values, best)
    return "lower" if where <= _NEAR else "upper" if where >= 1 - _NEAR else ""
