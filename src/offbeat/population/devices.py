"""How fast and how reliable each client's device is.

``constant``, ``lognormal`` and ``pareto`` are the distributions to draw from. All are called alike; a client's value
comes from one uniform number of its own by the inverse of the distribution function, so it does not depend on how
many clients there are.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from offbeat.errors import OffbeatError
from offbeat.randomness import Purpose, uniform

# Half the distance between two uniform numbers: stands for 0, where a normal quantile is −∞.
_SMALLEST_UNIFORM = 2.0**-54


@dataclass(frozen=True, eq=False)
class Devices:
    """The devices of N clients.

    Attributes:
        step_seconds: ``(N,)`` float64, how long one local step takes.
        down_bytes_per_second: ``(N,)`` float64, how fast the client downloads.
        up_bytes_per_second: ``(N,)`` float64, how fast the client uploads.
        loss_probability: ``(N,)`` float64, how probable it is that a visit's work never arrives.
    """

    step_seconds: NDArray[np.float64]
    down_bytes_per_second: NDArray[np.float64]
    up_bytes_per_second: NDArray[np.float64]
    loss_probability: NDArray[np.float64]

    def visit_is_lost(self, seed: int, client: ArrayLike, visit: ArrayLike) -> NDArray[np.bool_]:
        """Return whether the work of each (client, visit) is lost on its way.

        Args:
            seed: The run's seed.
            client: Client numbers, broadcast against ``visit``.
            visit: How many times the client had been given work before.

        Returns:
            Array of the broadcast shape, at least ``(1,)``.
        """
        return uniform(seed, Purpose.LOSS, client, visit) < self.loss_probability[np.asarray(client)]


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


def lossy(clients: int, *, fraction: float, probability: float, seed: int) -> NDArray[np.float64]:
    """Return loss probabilities: ``probability`` for a random part of the clients, 0 for the others.

    Args:
        clients: How many clients, N.
        fraction: The part of the clients that is lossy, in [0, 1]; exactly round(fraction · N) clients are.
        probability: How probable it is that a visit's work of a lossy client is lost, in [0, 1].
        seed: The run's seed.

    Returns:
        ``(N,)``.

    Raises:
        OffbeatError: One of the two numbers is not in [0, 1].
    """
    for name, number in (("fraction", fraction), ("probability", probability)):
        if not 0 <= number <= 1:
            raise OffbeatError(f"{name} is {number}, but must be between 0 and 1")
    order = np.argsort(_one_each(clients, seed, Purpose.LOSSY_CLIENTS), kind="stable")
    probabilities = np.zeros(clients)
    probabilities[order[: round(fraction * clients)]] = probability
    return probabilities


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
