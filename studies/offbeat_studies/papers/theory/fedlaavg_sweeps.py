"""Sweeps of FedLaAvg's Corollary 4 and of its Theorem 1 with several steps."""

import math

import numpy as np

from offbeat_studies.papers.theory.fedlaavg import theorem3_rows
from offbeat_studies.papers.theory.measured_bound import MeasureAt, Row
from offbeat_studies.papers.theory.problems import Quadratics


def _fedlaavg(
    seeds: int,
    rng: np.random.Generator,
    *,
    rounds: int = 16_384,
    clients: int = 16,
    available_every: int = 2,
    steps: int = 1,
    lr: float | None = None,
) -> Row:
    # Half of the clients have each of two minima, and a quarter of all takes part, so that only N changes.
    centres = np.tile([[1.0, -1.0], [-1.0, 1.0]], (clients // 2, 1))
    name, start = f"quadratics, N = {clients}, d = 2", np.ones(2)
    problem = Quadratics(name, np.array([0.8, 1.0]), centres, start, variance=1.0)
    _, bound = theorem3_rows(
        problem, rng, seeds, cohort=clients // 4, available_every=available_every, rounds=rounds, steps=steps, lr=lr
    )
    return bound


COROLLARY_4: dict[str, MeasureAt] = {
    "fedlaavg_rounds": lambda value, seeds, rng: _fedlaavg(seeds, rng, rounds=value),
    "fedlaavg_clients": lambda value, seeds, rng: _fedlaavg(seeds, rng, clients=value),
    "fedlaavg_clients_at_full_step": lambda value, seeds, rng: _fedlaavg(
        seeds, rng, clients=value, lr=math.sqrt(value / 16_384) / 2
    ),
    "fedlaavg_available_every": lambda value, seeds, rng: _fedlaavg(seeds, rng, available_every=value),
}
"""T; N; N with γ = √N/(2L√T), L = 1; E."""

THEOREM_1: dict[str, MeasureAt] = {
    "fedlaavg_steps": lambda value, seeds, rng: _fedlaavg(seeds, rng, steps=value),
    "fedlaavg_rounds_with_steps": lambda value, seeds, rng: _fedlaavg(seeds, rng, rounds=value, steps=4),
    "fedlaavg_clients_with_steps": lambda value, seeds, rng: _fedlaavg(seeds, rng, clients=value, steps=4),
}
"""C; R with C = 4; N with C = 4."""
