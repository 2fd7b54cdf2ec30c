"""Sweeps: a bound and the measured value as one of its numbers grows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offbeat_studies.papers.theory import async_comm_sgd_sweeps, fedbuff_sweeps, fedfa, fedlaavg_sweeps
from offbeat_studies.papers.theory.measured_bound import NORMAL_QUANTILE, MeasureAt, Row


@dataclass(frozen=True)
class Point:
    """A bound, measured at one value of the number."""

    value: float
    row: Row


def sweep(name: str, values: Sequence[int], seeds: int) -> list[Point]:
    """Measure a bound at several values."""
    number = list(SWEEPS).index(name)
    return [Point(value, SWEEPS[name](value, seeds, np.random.default_rng([number, seeds, value]))) for value in values]


def slope_with_error(points: Sequence[Point]) -> tuple[float, float]:
    """Return p of measured ∝ value^p, and its standard error.

    It is the least-squares fit of the logarithms. The error is that of the measured means, whose logarithms have the
    errors s / m to first order.
    """
    x = np.log([point.value for point in points])
    measured = np.array([point.row.measured for point in points])
    errors = np.array([point.row.half_width for point in points]) / NORMAL_QUANTILE / measured
    weights = (x - x.mean()) / np.square(x - x.mean()).sum()
    return float(weights @ np.log(measured)), float(np.sqrt(np.square(weights * errors).sum()))


# A sweep's place is part of its random seed: new sweeps come last.
SWEEPS: dict[str, MeasureAt] = {
    **fedbuff_sweeps.THEOREM_1,
    **async_comm_sgd_sweeps.THEOREM_2_2,
    **fedbuff_sweeps.REMARKS,
    **fedlaavg_sweeps.COROLLARY_4,
    **async_comm_sgd_sweeps.THEOREM_2_4,
    **fedfa.SWEEPS,
    **fedlaavg_sweeps.THEOREM_1,
}
"""All sweeps, by the name of the number that grows."""
