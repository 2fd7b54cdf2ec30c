"""Least squares, whose gradients are not bounded, with known constants."""

from dataclasses import dataclass

import numpy as np

from offbeat_studies.papers.theory.measured_bound import Array
from offbeat_studies.papers.theory.problems import Clients, Problem


@dataclass(frozen=True)
class LeastSquares(Problem):
    """f_i(x) = ‖Ax − y_i‖² / 2n: all clients share A, each has its own answers y_i.

    Each stochastic gradient adds fresh Gaussian noise to the answers, so that its variance is the same everywhere.

    Attributes:
        name: For the report.
        features: A, ``(n, d)``.
        answers: The y_i, ``(N, n)``.
        start: x_0, ``(d,)``.
        noise: Standard deviation of the noise on each answer.
    """

    name: str
    features: Array
    answers: Array
    start: Array
    noise: float

    @property
    def clients(self) -> int:
        """N."""
        return len(self.answers)

    @property
    def smoothness(self) -> float:
        """L = λ_max(AᵀA) / n."""
        return float(np.linalg.norm(self.features, 2) ** 2 / len(self.features))

    @property
    def variance(self) -> float:
        """σ² = noise² ‖A‖_F² / n²."""
        return float((self.noise / len(self.features)) ** 2 * (self.features**2).sum())

    @property
    def diversity(self) -> float:
        """γ² = (1/N) Σ_i ‖Aᵀ(y_i − ȳ)‖² / n², the same everywhere."""
        apart = (self.answers - self.answers.mean(0)) @ self.features / len(self.features)
        return float((apart**2).sum(-1).mean())

    @property
    def initial_error(self) -> float:
        """f(start) − f*."""
        mean = self.answers.mean(0)
        best = np.linalg.lstsq(self.features, mean, rcond=None)[0]
        return float(((self.features @ (self.start - best)) ** 2).sum() / (2 * len(self.features)))

    def gradients(self, clients: Clients, points: Array, rng: np.random.Generator) -> Array:
        """Return one stochastic gradient of f_i at each point, ``(..., d)``."""
        noise = self.noise * rng.standard_normal((*clients.shape, len(self.features)))
        return self.exact_gradients(clients, points) + noise @ self.features / len(self.features)

    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return Aᵀ(Ax − y_i) / n at each point, ``(..., d)``."""
        return (points @ self.features.T - self.answers[clients]) @ self.features / len(self.features)


def least_squares(name: str, clients: int, examples: int, dimensions: int, noise: float) -> LeastSquares:
    """Return least squares in which each client has parameters of its own.

    A client's answers come from its parameters, which are drawn around common ones.
    """
    rng = np.random.default_rng([clients, examples, dimensions])
    features = 0.5 * rng.standard_normal((examples, dimensions))
    own = 1 + rng.standard_normal((clients, dimensions))
    answers = own @ features.T + 0.1 * rng.standard_normal((clients, examples))
    return LeastSquares(name, features, answers, np.full(dimensions, 3.0), noise)
