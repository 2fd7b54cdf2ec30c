"""Sweeps of FedBuff's Theorem 1 and of the two remarks after it."""

import numpy as np

from offbeat_studies.papers.theory.fedbuff import fedbuff_row, unequal_arrivals_row
from offbeat_studies.papers.theory.least_squares import least_squares
from offbeat_studies.papers.theory.measured_bound import MeasureAt, Row
from offbeat_studies.papers.theory.problems import Quadratics, quadratics


def _fedbuff(
    seeds: int,
    rng: np.random.Generator,
    *,
    server_steps: int = 32_400,  # the fewest for Q = 8 and τ = 2
    steps: int = 2,
    buffer_size: int = 2,
    max_staleness: int = 1,
    batch_size: int = 1,
    server_lr: float = 1.0,
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
        server_lr=server_lr,
    )


def _fedbuff_least_squares(seeds: int, rng: np.random.Generator, server_steps: int) -> Row:
    problem = least_squares("least squares, N = 8, n = 20, d = 3", 8, 20, 3, noise=2.0)
    return fedbuff_row(problem, rng, seeds, steps=2, buffer_size=2, max_staleness=1, server_steps=server_steps)


def _fedbuff_clients(seeds: int, rng: np.random.Generator, clients: int) -> Row:
    # Half of the clients have each of two minima: all are equally far from their mean, and only N changes.
    centres = np.tile([[2.0, -2.0], [-2.0, 2.0]], (clients // 2, 1))
    name, start = f"quadratics, N = {clients}, d = 2", np.ones(2)
    problem = Quadratics(name, np.array([0.25, 0.5]), centres, start, variance=0.5)
    return fedbuff_row(
        problem,
        rng,
        seeds,
        steps=2,
        buffer_size=2,
        max_staleness=1,
        server_steps=11_520,
        uniform_diversity=True,
    )


THEOREM_1: dict[str, MeasureAt] = {
    "fedbuff_server_steps": lambda value, seeds, rng: _fedbuff(seeds, rng, server_steps=value),
    "fedbuff_staleness": lambda value, seeds, rng: _fedbuff(seeds, rng, max_staleness=value),
    "fedbuff_buffer_size": lambda value, seeds, rng: _fedbuff(seeds, rng, buffer_size=value),
    "fedbuff_steps": lambda value, seeds, rng: _fedbuff(seeds, rng, steps=value),
    "fedbuff_batch_size": lambda value, seeds, rng: _fedbuff(seeds, rng, batch_size=value),
    "fedbuff_least_squares": lambda value, seeds, rng: _fedbuff_least_squares(seeds, rng, value),
    "fedbuff_unequal_arrivals": lambda value, seeds, rng: unequal_arrivals_row(rng, seeds, value),
}
"""T, τ, K, Q, b; T on least squares; T where one of two clients makes nine arrivals of ten."""

REMARKS: dict[str, MeasureAt] = {
    "fedbuff_small_server_lr": lambda value, seeds, rng: _fedbuff(seeds, rng, server_steps=value, server_lr=0.25),
    "fedbuff_large_server_lr": lambda value, seeds, rng: _fedbuff(seeds, rng, server_steps=value, server_lr=4.0),
    "fedbuff_clients": lambda value, seeds, rng: _fedbuff_clients(seeds, rng, value),
}
"""T with βK = ¼ and with βK = 4 (Remark 1); N where all clients are equally heterogeneous (Remark 2)."""
