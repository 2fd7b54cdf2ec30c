"""Quadratics of unequal steepness: clients drift apart between communications."""

import math

from offbeat_studies.papers.theory.measured_bound import Array
from offbeat_studies.papers.theory.problems import Clients, Quadratics


class UnequalQuadratics(Quadratics):
    """f_i(x) = ½ (x − c_i)ᵀ A_i (x − c_i): ``curvature`` is ``(N, d)``.

    If all A_i are equal, the mean of the clients' local steps equals steps on f, however long the gap.
    """

    @property
    def diversity(self) -> float:
        """γ², which is infinite: it grows with the distance of the point."""
        return math.inf

    def errors(self, points: Array) -> Array:
        """Return f − f* at each point, ``(...)``."""
        mean = self.curvature.mean(0)
        best = (self.curvature * self.centres).mean(0) / mean
        return 0.5 * (mean * (points - best) ** 2).sum(-1)

    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return A_i(x − c_i) at each point, ``(..., d)``."""
        return self.curvature[clients] * (points - self.centres[clients])
