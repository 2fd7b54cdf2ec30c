"""Measures of a run: accuracy at a budget, and the cost to a target."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offbeat.statistics.hypothesis_tests import Range

_AVERAGED = 0.2  # of the budget: a single evaluation fluctuates
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Curve:
    """One run's accuracy and costs at its evaluations."""

    seed: int
    costs: Mapping[str, NDArray[np.float64]]
    accuracy: NDArray[np.float64]


def accuracy_at(curve: Curve, cost: str, budget: float) -> float:
    """Return the mean accuracy over the last fifth of a budget.

    Between evaluations it is linear. NaN if the run ended before it had spent the budget. A run that diverged counts
    as 0, whatever it spent.
    """
    spent, accuracy = curve.costs[cost], curve.accuracy
    if has_diverged(curve):
        return 0.0
    if spent[-1] < budget * (1 - _ROUNDING):
        return math.nan
    begin = (1 - _AVERAGED) * budget
    xs = np.concatenate([[begin], spent[(spent > begin) & (spent < budget)], [budget]])
    ys = np.interp(xs, spent, accuracy)
    return float(np.trapezoid(ys, xs) / (budget - begin))


def cost_to(curve: Curve, cost: str, target: float) -> Range:
    """Return the cost at the first evaluation at or above the target.

    If there is none, all that is known is that it is above the cost of the whole run; a run that diverged would never
    have reached it.
    """
    spent = curve.costs[cost]
    reached = np.flatnonzero(curve.accuracy >= target)
    if len(reached):
        return Range(float(spent[reached[0]]), float(spent[reached[0]]))
    return Range(math.inf if has_diverged(curve) else float(spent[-1]), math.inf)


def has_diverged(curve: Curve) -> bool:
    """Return whether a run ended because its model was no longer finite."""
    return not math.isfinite(curve.accuracy[-1])
