"""Distributions of a number a client: its seconds a step, its bandwidth.

All are called alike. A client's value comes from one uniform number of its own by the inverse of the distribution
function, so it does not depend on how many clients there are.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.randomness import Purpose, uniform

# Half the distance between two uniform numbers: stands for 0, where a quantile may be 0 or −∞.
_SMALLEST_UNIFORM = 2.0**-54


def constant(clients: int, *, value: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return ``value`` for each client, ``(clients,)``; the random source is not used.

    Raises:
        OffbeatError: The value is not above 0.
    """
    _check_above_zero("value", value)
    return np.full(clients, value, np.float64)


def lognormal(
    clients: int, *, median: float, sigma: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Return a log-normal number for each client: median · exp(sigma · z), z standard normal.

    Args:
        clients: How many clients, N.
        median: Half the clients are below it; in the unit of the result.
        sigma: The standard deviation of the number's natural logarithm.
        seed: The run's seed.
        purpose: What the numbers are for.
        draw: Tells apart several numbers a client for the same purpose.

    Returns:
        ``(N,)``.

    Raises:
        OffbeatError: The median is not above 0 or sigma is below 0, or a value is too large for a float.
    """
    _check_above_zero("median", median)
    if not sigma >= 0:
        raise OffbeatError(f"sigma is {sigma}, but must be at least 0")
    u = np.maximum(_one_each(clients, seed, purpose, draw), _SMALLEST_UNIFORM)
    normal = torch.special.ndtri(torch.from_numpy(u)).numpy()
    with np.errstate(over="ignore"):
        return _check_finite(median * np.exp(sigma * normal), f"sigma = {sigma} is too large")


def pareto(
    clients: int, *, minimum: float, shape: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Return a Pareto number for each client: P(number > x) = (minimum / x)^shape for x ≥ minimum.

    Args:
        clients: How many clients, N.
        minimum: The smallest possible number; in the unit of the result.
        shape: How fast the tail falls off; the mean is finite above 1, the variance above 2.
        seed: The run's seed.
        purpose: What the numbers are for.
        draw: Tells apart several numbers a client for the same purpose.

    Returns:
        ``(N,)``.

    Raises:
        OffbeatError: The minimum or the shape is not above 0, or a value is too large for a float.
    """
    _check_above_zero("minimum", minimum)
    _check_above_zero("shape", shape)
    u = _one_each(clients, seed, purpose, draw)
    with np.errstate(over="ignore"):
        return _check_finite(minimum * (1.0 - u) ** (-1.0 / shape), f"shape = {shape} is too small")


def uniform_between(
    clients: int, *, low: float, high: float, seed: int, purpose: Purpose, draw: int = 0
) -> NDArray[np.float64]:
    """Return a number for each client that is equally likely to be anywhere from ``low`` to ``high``, ``(clients,)``.

    Raises:
        OffbeatError: low is not above 0, or high is below low or not finite.
    """
    _check_above_zero("low", low)
    if not low <= high < np.inf:
        raise OffbeatError(f"high is {high}, but must be finite and at least low, {low}")
    return low + (high - low) * _one_each(clients, seed, purpose, draw)


def exponential(clients: int, *, mean: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return an exponential number for each client: P(number > x) = exp(−x / mean); ``(clients,)``.

    Raises:
        OffbeatError: The mean is not above 0, or a value is too large for a float.
    """
    _check_above_zero("mean", mean)
    u = np.maximum(_one_each(clients, seed, purpose, draw), _SMALLEST_UNIFORM)
    with np.errstate(over="ignore"):
        return _check_finite(-mean * np.log1p(-u), f"mean = {mean} is too large")


def half_normal(clients: int, *, mean: float, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return a half-normal number for each client: |z| · mean · √(π/2), z standard normal; ``(clients,)``.

    Raises:
        OffbeatError: The mean is not above 0, or a value is too large for a float.
    """
    _check_above_zero("mean", mean)
    # (1 − u) / 2 must differ from ½, whose quantile is 0; and the lower tail keeps the digits that the upper one loses.
    u = np.maximum(_one_each(clients, seed, purpose, draw), 2.0**-52)
    normal = -torch.special.ndtri(torch.from_numpy((1.0 - u) / 2)).numpy()
    with np.errstate(over="ignore"):
        return _check_finite(mean * np.sqrt(np.pi / 2) * normal, f"mean = {mean} is too large")


def _one_each(clients: int, seed: int, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
    """Return one uniform number in [0, 1) a client."""
    return uniform(seed, purpose, client=np.arange(clients), draw=draw)


def _check_above_zero(name: str, number: float) -> None:
    if not number > 0:
        raise OffbeatError(f"{name} is {number}, but must be above 0")


def _check_finite(values: NDArray[np.float64], problem: str) -> NDArray[np.float64]:
    if not np.isfinite(values).all():
        raise OffbeatError(f"{problem}: a client's value is beyond what a float can hold")
    return values
