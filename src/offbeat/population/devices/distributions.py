"""Distributions of a number per client, such as seconds per step or bandwidth.

All functions take the number of clients N, the parameters of the distribution, the run's seed, a purpose, and a draw
that separates several numbers of one client for one purpose; they return float64 ``(N,)`` in the unit of their
parameters. A client's value is the quantile of one uniform number, so it does not depend on N.

A new distribution is a function here, a section in ``config/population_sections.py`` and a line in
``worlds/population.py``.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.uniform_numbers import uniform

# Half the distance between two uniform numbers; replaces 0, whose quantile may be 0 or −∞.
_SMALLEST_UNIFORM = 2.0**-54


def constant(clients: int, *, value: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return ``value`` for each client.

    Raises:
        OffbeatError: The value is not above 0.
    """
    _check_above_zero("value", value)
    return np.full(clients, value, np.float64)


def lognormal(
    clients: int, *, median: float, sigma: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Draw log-normal numbers, median · exp(sigma · z) with z standard normal.

    Raises:
        OffbeatError: The median is not above 0 or sigma is below 0, or a value is too large for a float.
    """
    _check_above_zero("median", median)
    if not sigma >= 0:
        raise OffbeatError(f"sigma is {sigma}, but must be at least 0")
    u = np.maximum(_draw_uniform(clients, seed, purpose, draw), _SMALLEST_UNIFORM)
    normal = torch.special.ndtri(torch.from_numpy(u)).numpy()
    with np.errstate(over="ignore"):
        return _check_finite(median * np.exp(sigma * normal), f"sigma = {sigma} is too large")


def pareto(
    clients: int, *, minimum: float, shape: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Draw Pareto numbers, P(X > x) = (minimum / x)^shape for x ≥ minimum.

    The mean is finite for shapes above 1, the variance above 2.

    Raises:
        OffbeatError: The minimum or the shape is not above 0, or a value is too large for a float.
    """
    _check_above_zero("minimum", minimum)
    _check_above_zero("shape", shape)
    u = _draw_uniform(clients, seed, purpose, draw)
    with np.errstate(over="ignore"):
        return _check_finite(minimum * (1.0 - u) ** (-1.0 / shape), f"shape = {shape} is too small")


def uniform_between(
    clients: int, *, low: float, high: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Draw uniform numbers in [low, high).

    Raises:
        OffbeatError: low is not above 0, or high is below low or not finite.
    """
    _check_above_zero("low", low)
    if not low <= high < np.inf:
        raise OffbeatError(f"high is {high}, but must be finite and at least low, {low}")
    return low + (high - low) * _draw_uniform(clients, seed, purpose, draw)


def exponential(clients: int, *, mean: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Draw exponential numbers, P(X > x) = exp(−x / mean).

    Raises:
        OffbeatError: The mean is not above 0, or a value is too large for a float.
    """
    _check_above_zero("mean", mean)
    u = np.maximum(_draw_uniform(clients, seed, purpose, draw), _SMALLEST_UNIFORM)
    with np.errstate(over="ignore"):
        return _check_finite(-mean * np.log1p(-u), f"mean = {mean} is too large")


def half_normal(clients: int, *, mean: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Draw half-normal numbers, |z| · mean · √(π/2) with z standard normal.

    Raises:
        OffbeatError: The mean is not above 0, or a value is too large for a float.
    """
    _check_above_zero("mean", mean)
    # (1 − u) / 2 must differ from ½, whose quantile is 0. The lower tail is more accurate than the upper one.
    u = np.maximum(_draw_uniform(clients, seed, purpose, draw), 2.0**-52)
    normal = -torch.special.ndtri(torch.from_numpy((1.0 - u) / 2)).numpy()
    with np.errstate(over="ignore"):
        return _check_finite(mean * np.sqrt(np.pi / 2) * normal, f"mean = {mean} is too large")


def _draw_uniform(clients: int, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return one uniform number in [0, 1) for each client."""
    return uniform(seed, purpose, client=np.arange(clients), draw=draw)


def _check_above_zero(name: str, number: float) -> None:
    if not number > 0:
        raise OffbeatError(f"{name} is {number}, but must be above 0")


def _check_finite(values: NDArray[np.float64], problem: str) -> NDArray[np.float64]:
    if not np.isfinite(values).all():
        raise OffbeatError(f"{problem}: a client's value is beyond what a float can hold")
    return values
