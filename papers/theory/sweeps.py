"""Sweeps: a bound and the measured value as one of its numbers grows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from papers.theory.async_comm_sgd import convex_rows, full
from papers.theory.fedbuff import fedbuff_row, unequal_arrivals_row
from papers.theory.least_squares import least_squares
from papers.theory.measured_bound import NORMAL_QUANTILE, Row
from papers.theory.problems import Quadratics, quadratics
from papers.theory.unequal_quadratics import UnequalQuadratics


@dataclass(frozen=True)
class Point:
    """A bound, measured at one value of the number."""

    value: float
    row: Row


def sweep(name: str, values: Sequence[int], seeds: int) -> list[Point]:
    """Measure a bound at several values."""
    number = list(SWEEPS).index(name)
    return [Point(value, SWEEPS[name](value, seeds, np.random.default_rng([number, seeds]))) for value in values]


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


def _fedbuff(
    seeds: int,
    rng: np.random.Generator,
    *,
    server_steps: int = 32_400,  # the fewest for Q = 8 and τ = 2
    steps: int = 2,
    buffer_size: int = 2,
    max_staleness: int = 1,
    batch_size: int = 1,
) -> Row:
    problem = quadratics("quadratics, N = 8, d = 3", 8, [0.05, 0.25, 0.5], variance=2 / batch_size)
    return fedbuff_row(
        problem,
        rng,
        seeds,
        steps=steps,
        buffer_size=buffer_size,
        max_staleness=max_staleness,
        server_steps=server_steps,
    )


def _fedbuff_least_squares(seeds: int, rng: np.random.Generator, server_steps: int) -> Row:
    problem = least_squares("least squares, N = 8, n = 20, d = 3", 8, 20, 3, noise=2.0)
    return fedbuff_row(problem, rng, seeds, steps=2, buffer_size=2, max_staleness=1, server_steps=server_steps)


def _async_comm(seeds: int, rng: np.random.Generator, *, rounds: int = 4000, clients: int = 8, gap: int = 4) -> Row:
    # Half of the clients have each of two minima, so that only N changes.
    centres = np.tile([[1.0, -1.0], [-1.0, 1.0]], (clients // 2, 1))
    name, start = f"quadratics, N = {clients}, d = 2", np.ones(2)
    problem = Quadratics(name, np.array([0.8, 1.0]), centres, start, variance=1.0)
    return convex_rows(problem, rng, seeds, f"full({gap})", full(gap, rounds=rounds, clients=clients))[1]


def _async_comm_drift(seeds: int, rng: np.random.Generator, *, rounds: int = 4000, gap: int = 16) -> Row:
    # Without noise the term 1/NT vanishes, and the term of the gap is left.
    curvatures, centres = np.array([[0.5], [1.0]]), np.array([[1.0], [-1.0]])
    problem = UnequalQuadratics("quadratics of unequal steepness, N = 2, d = 1", curvatures, centres, np.ones(1))
    return convex_rows(problem, rng, seeds, f"full({gap})", full(gap, rounds=rounds, clients=2))[1]


SWEEPS: dict[str, Callable[[int, int, np.random.Generator], Row]] = {
    "fedbuff_server_steps": lambda value, seeds, rng: _fedbuff(seeds, rng, server_steps=value),
    "fedbuff_staleness": lambda value, seeds, rng: _fedbuff(seeds, rng, max_staleness=value),
    "fedbuff_buffer_size": lambda value, seeds, rng: _fedbuff(seeds, rng, buffer_size=value),
    "fedbuff_steps": lambda value, seeds, rng: _fedbuff(seeds, rng, steps=value),
    "fedbuff_batch_size": lambda value, seeds, rng: _fedbuff(seeds, rng, batch_size=value),
    "fedbuff_least_squares": lambda value, seeds, rng: _fedbuff_least_squares(seeds, rng, value),
    "fedbuff_unequal_arrivals": lambda value, seeds, rng: unequal_arrivals_row(rng, seeds, value),
    "async_comm_sgd_rounds": lambda value, seeds, rng: _async_comm(seeds, rng, rounds=value),
    "async_comm_sgd_clients": lambda value, seeds, rng: _async_comm(seeds, rng, clients=value),
    "async_comm_sgd_gap": lambda value, seeds, rng: _async_comm(seeds, rng, gap=value),
    "async_comm_sgd_rounds_and_gap": lambda value, seeds, rng: _async_comm(
        seeds, rng, rounds=value, gap=max(1, math.isqrt(value // 8))
    ),
    "async_comm_sgd_drift_rounds": lambda value, seeds, rng: _async_comm_drift(seeds, rng, rounds=value),
    "async_comm_sgd_drift_gap": lambda value, seeds, rng: _async_comm_drift(seeds, rng, gap=value),
}
"""Measures the bound at a value, with so many seeds, by the name of the number that grows.

FedBuff's Theorem 1: T, τ, K, Q, b; T on least squares; T where one of two clients makes nine arrivals of ten.
AsyncCommSGD's Theorem 2.2: T, N, Δ; T with Δ = √(T/N); T and Δ where clients drift apart."""
