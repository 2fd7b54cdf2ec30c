"""Holm's correction for several tests."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values, in the same order.

    The k-th smallest of m p-values is multiplied by m − k + 1; an adjusted p-value is at least those of all smaller
    ones, and at most 1. Those of 0.05 or less can be rejected together: the probability of any mistake is 5 %.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted
