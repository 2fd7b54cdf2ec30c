"""Sweeps of AsyncCommSGD's Theorems 2.2 and 2.4."""

import math

import numpy as np

from offbeat.theory.async_comm_sgd import async_comm_step_size
from offbeat_studies.papers.theory.async_comm_sgd import convex_rows, full, smooth_row
from offbeat_studies.papers.theory.double_well import DoubleWell
from offbeat_studies.papers.theory.measured_bound import MeasureAt, Row
from offbeat_studies.papers.theory.problems import Quadratics
from offbeat_studies.papers.theory.unequal_quadratics import UnequalQuadratics


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


def _async_comm_smooth(
    seeds: int, rng: np.random.Generator, *, rounds: int = 16_384, clients: int = 2, gap: int
) -> Row:
    problem = DoubleWell(f"double well, N = {clients}", clients // 2, start=np.array([3.0]), variance=1.0)
    lr = async_comm_step_size(rounds=rounds, clients=clients, smoothness=problem.smoothness)
    pattern = full(gap, rounds=rounds, clients=clients)
    return smooth_row(problem, rng, seeds, f"full({gap})", pattern, lr=lr)


def _largest_gap_of_table_1(rounds: int, clients: int) -> int:
    """Return ⌊T^¼/N^¾⌋, at least 1."""
    return max(1, math.floor(rounds**0.25 / clients**0.75))


THEOREM_2_2: dict[str, MeasureAt] = {
    "async_comm_sgd_rounds": lambda value, seeds, rng: _async_comm(seeds, rng, rounds=value),
    "async_comm_sgd_clients": lambda value, seeds, rng: _async_comm(seeds, rng, clients=value),
    "async_comm_sgd_gap": lambda value, seeds, rng: _async_comm(seeds, rng, gap=value),
    "async_comm_sgd_rounds_and_gap": lambda value, seeds, rng: _async_comm(
        seeds, rng, rounds=value, gap=max(1, math.isqrt(value // 8))
    ),
    "async_comm_sgd_drift_rounds": lambda value, seeds, rng: _async_comm_drift(seeds, rng, rounds=value),
    "async_comm_sgd_drift_gap": lambda value, seeds, rng: _async_comm_drift(seeds, rng, gap=value),
}
"""T, N, Δ; T with Δ = √(T/N); T and Δ where clients drift apart."""

THEOREM_2_4: dict[str, MeasureAt] = {
    "async_comm_sgd_smooth_rounds_and_gap": lambda value, seeds, rng: _async_comm_smooth(
        seeds, rng, rounds=value, gap=_largest_gap_of_table_1(value, 2)
    ),
    "async_comm_sgd_smooth_clients": lambda value, seeds, rng: _async_comm_smooth(
        seeds, rng, clients=value, gap=_largest_gap_of_table_1(16_384, value)
    ),
    "async_comm_sgd_smooth_gap": lambda value, seeds, rng: _async_comm_smooth(seeds, rng, gap=value),
    "async_comm_sgd_smooth_rounds_and_long_gap": lambda value, seeds, rng: _async_comm_smooth(
        seeds, rng, rounds=value, gap=max(1, math.isqrt(value // 2))
    ),
}
"""T with Δ = T^¼/N^¾, its largest value in Table 1; N with this Δ; Δ; T with Δ = √(T/N)."""
