"""Curves of log uploads, fitted to runs of which some are censored."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Array = NDArray[np.float64]
_ROUNDS = 500
_LEAST_DEVIATION = 0.01  # of log uploads, which are counted in steps of a few percent


def censored_fit(design: Array, values: Array, is_censored: NDArray[np.bool_]) -> Array:
    """Return the coefficients of a linear model by maximum likelihood.

    Errors are normal. A censored value is a lower bound of the true one. Expectation and maximisation take turns: a
    censored value is replaced by its mean under the model, given the bound, and least squares follow.
    """
    coefficients = _least_squares(design, values)
    variance = max(float(((values - design @ coefficients) ** 2).mean()), _LEAST_DEVIATION**2)
    if not is_censored.any():
        return coefficients
    bounds = values[is_censored]
    filled = values.copy()
    for _ in range(_ROUNDS):
        deviation = math.sqrt(variance)
        means = (design @ coefficients)[is_censored]
        z = (bounds - means) / deviation
        # φ(z) / (1 − Φ(z)), also where both are tiny
        hazard = np.exp(-(z**2) / 2 - math.log(math.sqrt(2 * math.pi)) - log_ndtr(-z))
        filled[is_censored] = means + deviation * hazard
        left = np.zeros(len(values))
        left[is_censored] = variance * (1 + z * hazard - hazard**2)
        before, coefficients = coefficients, _least_squares(design, filled)
        variance = max(float(((filled - design @ coefficients) ** 2 + left).mean()), _LEAST_DEVIATION**2)
        if np.abs(coefficients - before).max() < 1e-9:
            break
    return coefficients


def _least_squares(design: Array, values: Array) -> Array:
    return np.asarray(np.linalg.lstsq(design, values, rcond=None)[0], dtype=np.float64)


@dataclass(frozen=True)
class Curve:
    """log(uploads / τ_u) = Σ_j (a_j + b_j log τ_u) (log x)^j for j = 0 … 3, x = D τ_u."""

    coefficients: Array

    @classmethod
    def fit(cls, x: Array, delays: Array, log_uploads: Array, is_censored: NDArray[np.bool_]) -> "Curve":
        """Return the curve with the largest likelihood; all arguments are ``(runs,)``."""
        return cls(censored_fit(_design(x, delays), log_uploads - np.log(delays), is_censored))

    def log_uploads(self, x: float, delay: float) -> float:
        """Return log uploads at x = D τ_u and τ_u."""
        return float((_design(np.array([x]), np.array([delay])) @ self.coefficients)[0]) + math.log(delay)


def _design(x: Array, delays: Array) -> Array:
    powers = np.log(x)[:, None] ** np.arange(4.0)
    return np.concatenate([powers, np.log(delays)[:, None] * powers], axis=1)


def lowest_point(positions: Sequence[float], values: Sequence[float], is_censored: Sequence[bool]) -> float:
    """Return the position of the lowest point of a parabola through values.

    It is between the lowest and the highest position, and one of them where the parabola opens downwards.
    """
    at = np.array(positions)
    centre = float(at.mean())
    design = (at - centre)[:, None] ** np.arange(3.0)
    level, slope, curvature = censored_fit(design, np.array(values), np.array(is_censored, dtype=bool)).tolist()
    low, high = float(at.min()), float(at.max())
    if curvature <= 0:
        ends = [(level + slope * d + curvature * d * d, centre + d) for d in (low - centre, high - centre)]
        return min(ends)[1]
    return min(max(centre - slope / (2 * curvature), low), high)
