"""A loss that is not convex: two kinds of clients pull into two valleys."""

import math
from dataclasses import dataclass

import numpy as np

from offbeat_studies.papers.theory.measured_bound import Array
from offbeat_studies.papers.theory.problems import Clients, Problem

_CENTRE = 1.5  # > 1, so that f has two minima


@dataclass(frozen=True)
class DoubleWell(Problem):
    """Losses with two centres, and noisy gradients.

    f_i(x) = ½ log(1 + (x − c_i)²), c_i = 1.5 for even i, −1.5 for odd i.

    f is the same for every N. Its minima are ±√(c² − 1); between them it is concave.

    Attributes:
        name: For the report.
        pairs: N/2.
        start: x_0, ``(1,)``.
        variance: σ² of the Gaussian noise on the gradients.
    """

    name: str
    pairs: int
    start: Array
    variance: float = 0.0  # pyright: ignore[reportIncompatibleMethodOverride] a field is a property, too

    @property
    def clients(self) -> int:
        """N."""
        return 2 * self.pairs

    @property
    def smoothness(self) -> float:
        """L: |f_i''| = |1 − u²|/(1 + u²)², u = x − c_i, is largest at u = 0."""
        return 1.0

    @property
    def diversity(self) -> float:
        """γ²: two gradients, u/(1 + u²), are at most 1 apart, each ½ from their mean."""
        return 0.25

    @property
    def initial_error(self) -> float:
        """f(x_0) − f*, where f = ¼ log((1 + x² + c²)² − 4c²x²) and f* = ¼ log(4c²)."""
        squares = float(self.start[0]) ** 2, _CENTRE**2
        return 0.25 * math.log(((1 + sum(squares)) ** 2 - 4 * math.prod(squares)) / (4 * squares[1]))

    def gradients(self, clients: Clients, points: Array, rng: np.random.Generator) -> Array:
        """Return one stochastic gradient of f_i at each point, ``(..., 1)``."""
        return self.exact_gradients(clients, points) + math.sqrt(self.variance) * rng.standard_normal(points.shape)

    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return u/(1 + u²) at each point, ``(..., 1)``."""
        away = points - np.where(clients % 2, -_CENTRE, _CENTRE)[..., None]
        return away / (1 + away**2)
