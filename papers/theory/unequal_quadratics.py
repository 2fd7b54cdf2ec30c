"""Quadratics of unequal steepness.

Their clients drift apart between communications.
"""

import math
from dataclasses import dataclass

from papers.theory.measured_bound import Array
from papers.theory.problems import Clients, ConvexProblem


@dataclass(frozen=True)
class UnequalQuadratics(ConvexProblem):
    """f_i(x) = ½ (x − c_i)ᵀ A_i (x − c_i), A_i diagonal, with exact gradients.

    If all A_i are equal, the mean of the clients' local steps equals steps on f, however long the gap.

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
        """γ², which is infinite.

        The distance between two clients' gradients grows with the distance of the point.
        """
        return math.inf

    def errors(self, points: Array) -> Array:
        """Return f − f* at each point, ``(...)``."""
        mean = self.curvatures.mean(0)
        best = (self.curvatures * self.centres).mean(0) / mean
        return 0.5 * (mean * (points - best) ** 2).sum(-1)

    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return A_i(x − c_i) at each point, ``(..., d)``."""
        return self.curvatures[clients] * (points - self.centres[clients])
