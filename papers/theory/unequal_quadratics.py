"""Quadratics that are steeper at some clients than at others, so that clients who do not communicate drift apart."""

import math
from dataclasses import dataclass

import numpy as np

from papers.theory.measured_bound import Array
from papers.theory.problems import Clients


@dataclass(frozen=True)
class UnequalQuadratics:
    """f_i(x) = ½ (x − c_i)ᵀ A_i (x − c_i), A_i diagonal, with exact gradients.

    Where all A_i are the same, local steps lead on average where steps of all together would, however long the gap.

    Attributes:
        name: For the report.
        curvatures: The A_i's diagonals, ``(N, d)``.
        centres: The c_i, ``(N, d)``.
        start: x_0, ``(d,)``.
    """

    name: str
    curvatures: Array
    centres: Array
    start: Array

    @property
    def clients(self) -> int:
        """N."""
        return len(self.centres)

    @property
    def smoothness(self) -> float:
        """L, the largest curvature."""
        return float(self.curvatures.max())

    @property
    def strong_convexity(self) -> float:
        """λ, the smallest curvature."""
        return float(self.curvatures.min())

    @property
    def variance(self) -> float:
        """σ² = 0."""
        return 0.0

    @property
    def diversity(self) -> float:
        """γ²: infinite, since the gradients of two clients are the farther apart the farther away the point."""
        return math.inf

    @property
    def initial_error(self) -> float:
        """f(start) − f*."""
        return float(self.errors(self.start))

    def errors(self, points: Array) -> Array:
        """Return f − f* at each point, ``(...)``."""
        mean = self.curvatures.mean(0)
        best = (self.curvatures * self.centres).mean(0) / mean
        return 0.5 * (mean * (points - best) ** 2).sum(-1)

    def gradients(self, clients: Clients, points: Array, rng: np.random.Generator) -> Array:
        """Return ∇f_i at each point, ``(..., d)``."""
        return self.exact_gradients(clients, points)

    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return A_i(x − c_i) at each point, ``(..., d)``."""
        return self.curvatures[clients] * (points - self.centres[clients])

    def second_moment(self, clients: Clients, points: Array) -> float:
        """Return the largest ‖∇f_i(x)‖² at these points."""
        return float((self.exact_gradients(clients, points) ** 2).sum(-1).max())
