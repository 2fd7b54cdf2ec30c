"""Small problems with known constants: quadratics and logistic regression.

Clients and points are arrays: ``clients (...)`` of client numbers and ``points (..., d)``, one point for each.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offbeat_studies.papers.theory.measured_bound import Array

Clients = npt.NDArray[np.int64]
"""Client numbers, of any shape."""


class Problem(ABC):
    """f = (1/N) Σ_i f_i with known constants; see ``offbeat.theory`` for their names.

    Attributes:
        name: For the report.
        start: x_0, ``(d,)``.
    """

    name: str
    start: Array

    @property
    @abstractmethod
    def clients(self) -> int:
        """N."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L of every f_i."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """σ² of the gradients that ``gradients`` draws, that is, σ²/b."""

    @property
    @abstractmethod
    def diversity(self) -> float:
        """γ² ≥ (1/N) Σ_i ‖∇f_i − ∇f‖² everywhere."""

    @property
    @abstractmethod
    def initial_error(self) -> float:
        """f(start) − f*."""

    @abstractmethod
    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return ∇f_i at each point, ``(..., d)``."""

    @abstractmethod
    def gradients(self, clients: Clients, points: Array, rng: np.random.Generator) -> Array:
        """Return one stochastic gradient of f_i at each point, ``(..., d)``."""

    def second_moment(self, clients: Clients, points: Array) -> float:
        """Return the largest E‖stochastic gradient‖² at these points: ‖∇f_i(x)‖² + σ²."""
        return float((self.exact_gradients(clients, points) ** 2).sum(-1).max()) + self.variance


class ConvexProblem(Problem):
    """f whose parts are strongly convex."""

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """λ of every f_i."""

    @abstractmethod
    def errors(self, points: Array) -> Array:
        """Return f − f* at each point, ``(...)``."""

    @property
    def initial_error(self) -> float:
        """f(start) − f*."""
        return float(self.errors(self.start))


@dataclass(frozen=True)
class Quadratics(ConvexProblem):
    """Quadratic losses with noisy gradients.

    f_i(x) = ½ (x − c_i)ᵀ A (x − c_i), A diagonal, with Gaussian noise of variance σ² on the gradients.

    Attributes:
        name: For the report.
        curvature: A's diagonal, ``(d,)``.
        centres: The c_i, ``(N, d)``.
        start: x_0, ``(d,)``.
        variance: σ² = E‖noise‖².
    """

    name: str
    curvature: Array
    centres: Array
    start: Array
    variance: float = 0.0  # pyright: ignore[reportIncompatibleMethodOverride] a field is a property, too

    @property
    def clients(self) -> int:
        """N."""
        return len(self.centres)

    @property
    def smoothness(self) -> float:
        """L, the largest curvature."""
        return float(self.curvature.max())

    @property
    def strong_convexity(self) -> float:
        """λ, the smallest curvature."""
        return float(self.curvature.min())

    @property
    def _differences(self) -> Array:
        return ((self.curvature * (self.centres - self.centres.mean(0))) ** 2).sum(-1)

    @property
    def diversity(self) -> float:
        """γ² = (1/N) Σ_i ‖A(c_i − c̄)‖², the same everywhere."""
        return float(self._differences.mean())

    @property
    def largest_heterogeneity(self) -> float:
        """max_i ‖A(c_i − c̄)‖²."""
        return float(self._differences.max())

    def errors(self, points: Array) -> Array:
        """Return f − f* at each point, ``(...)``: ½ (x − c̄)ᵀ A (x − c̄)."""
        return 0.5 * (self.curvature * (points - self.centres.mean(0)) ** 2).sum(-1)

    def gradients(self, clients: Clients, points: Array, rng: np.random.Generator) -> Array:
        """Return one stochastic gradient of f_i at each point, ``(..., d)``."""
        scale = np.sqrt(self.variance / len(self.curvature))
        return self.exact_gradients(clients, points) + scale * rng.standard_normal(points.shape)

    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return A(x − c_i) at each point, ``(..., d)``."""
        return self.curvature * (points - self.centres[clients])


@dataclass(frozen=True)
class LogisticRegression(Problem):
    """Logistic losses with gradients from single examples.

    f_i(x) = (1/n) Σ_j log(1 + exp(−y_ij a_ijᵀx)). Examples are drawn with replacement.

    An example's gradient has at most the length ‖a_ij‖ at every x, so that G and σ² hold everywhere.

    Attributes:
        name: For the report.
        features: The a_ij times their labels y_ij = ±1, ``(N, n, d)``.
        start: x_0, ``(d,)``.
    """

    name: str
    features: Array
    start: Array

    @property
    def clients(self) -> int:
        """N."""
        return len(self.features)

    @property
    def smoothness(self) -> float:
        """L = max_i λ_max(A_iᵀA_i)/(4n)."""
        return float(max(np.linalg.norm(rows, 2) ** 2 / (4 * len(rows)) for rows in self.features))

    @property
    def variance(self) -> float:
        """σ² = max_i (1/n) Σ_j ‖a_ij‖², a bound on the second moment."""
        return float((self.features**2).sum(-1).mean(-1).max())

    @property
    def diversity(self) -> float:
        """γ²: ‖∇f_i − ∇f‖ is at most the mean ‖a_ij‖ of client i plus that of all clients."""
        lengths = np.linalg.norm(self.features, axis=-1).mean(-1)
        return float(((lengths + lengths.mean()) ** 2).mean())

    @property
    def initial_error(self) -> float:
        """f(start) − f*, f* by Newton's method."""
        rows = self.features.reshape(-1, self.features.shape[-1])
        point = self.start.copy()
        for _ in range(50):
            share = _share(rows @ point)
            hessian = (rows * (share * (1 - share))[:, None]).T @ rows / len(rows)
            point = point + np.linalg.solve(hessian, share @ rows / len(rows))
        return float(np.logaddexp(0, -rows @ self.start).mean() - np.logaddexp(0, -rows @ point).mean())

    def gradients(self, clients: Clients, points: Array, rng: np.random.Generator) -> Array:
        """Return the gradient of one example of client i at each point, ``(..., d)``."""
        example = self.features[clients, rng.integers(self.features.shape[1], size=clients.shape)]
        return -_share((example * points).sum(-1))[..., None] * example

    def exact_gradients(self, clients: Clients, points: Array) -> Array:
        """Return ∇f_i at each point, ``(..., d)``."""
        rows = self.features[clients]
        shares = _share(np.einsum("...nd,...d->...n", rows, points))
        return -np.einsum("...n,...nd->...d", shares, rows) / self.features.shape[1]

    def second_moment(self, clients: Clients, points: Array) -> float:
        """Return max_i (1/n) Σ_j ‖a_ij‖², which holds everywhere."""
        return self.variance


def mean_gradient_square(problem: Problem, path: Array) -> Array:
    """Return (1/T) Σ_t ‖∇f(x_t)‖² for each seed, ``(seeds,)``.

    ``path`` has the models x_t, ``(T, seeds, d)``.
    """
    pieces = np.array_split(path, 1 + len(path) // 200)  # bounds the memory
    return np.concatenate([_gradient_squares(problem, piece) for piece in pieces]).mean(0)


def _gradient_squares(problem: Problem, points: Array) -> Array:
    everyone = np.broadcast_to(np.arange(problem.clients), (*points.shape[:-1], problem.clients))
    spread = np.broadcast_to(points[..., None, :], (*everyone.shape, points.shape[-1]))
    return (problem.exact_gradients(everyone, spread).mean(-2) ** 2).sum(-1)


def quadratics(
    name: str, clients: int, curvature: list[float], *, variance: float = 0.0, spread: float = 1.0
) -> Quadratics:
    """Return quadratics with centres of standard deviation ``spread``."""
    rng = np.random.default_rng([clients, len(curvature)])
    centres = spread * rng.standard_normal((clients, len(curvature)))
    return Quadratics(name, np.array(curvature), centres, np.ones(len(curvature)), variance)


def logistic_regression(name: str, clients: int, examples: int = 20, dimensions: int = 3) -> LogisticRegression:
    """Return a regression of partly random labels, with centres for each client."""
    rng = np.random.default_rng([clients, examples, dimensions])
    places = rng.standard_normal((clients, 1, dimensions))
    features = 0.5 * (places + rng.standard_normal((clients, examples, dimensions)))
    likely = _share(-2 * features.sum(-1))
    labels = np.where(rng.random(likely.shape) < likely, 1.0, -1.0)
    return LogisticRegression(name, features * labels[..., None], np.full(dimensions, 2.0))


def _share(margins: Array) -> Array:
    """Return 1/(1 + exp(margin))."""
    return np.exp(-np.logaddexp(0, margins))
