"""Holm's correction for several tests."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values, in the same order.

    The k-th smallest of m p-values is multiplied by m − k + 1 and is at most 1; then each is raised to the largest of
    those before it. If all hypotheses with an adjusted p-value of 0.05 or less are rejected, the probability that any
    of these rejections is wrong is at most 5 %.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted
