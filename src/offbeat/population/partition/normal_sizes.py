"""Normally distributed sizes of shards."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.population.partition.shards import integer_sizes

_MAX_SIGMA = 1e6


def normal_sizes(examples: int, clients: int, sigma: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of examples of each client.

    The sizes are drawn with mean n/N and standard deviation sigma · n/N. All are shifted by the same amount, so that
    they add up to n, and those below 1 become 1; with a large sigma this makes the spread smaller than sigma.
    FedLaAvg's experiments with MNIST have sigma = 1/6 (Yan et al., "Distributed Non-Convex Optimization with Sublinear
    Speedup under Intermittent Client Availability", section 6.1). With sigma = 0, sizes differ by at most one.

    Returns:
        int64 ``(N,)``, each at least 1; they add up to n.

    Raises:
        OffbeatError: sigma is not in 0 … 10⁶.
    """
    if not 0 <= sigma <= _MAX_SIGMA:
        raise OffbeatError(f"sigma is {sigma}, but must be between 0 and {_MAX_SIGMA:g}")
    # abs, because numpy refuses −0.0.
    wanted = random.normal(0.0, abs(sigma) * examples / clients, clients)
    above_one = _shift(wanted, examples - clients)
    return 1 + integer_sizes(np.cumsum(above_one))


def _shift(amounts: NDArray[np.float64], total: int) -> NDArray[np.float64]:
    """Return max(0, amounts − s), with s such that the sum is ``total`` ≥ 0."""
    largest_first = np.sort(amounts)[::-1]
    # The s for which only the k largest amounts stay above 0, for k = 1, 2, …; the last consistent one is right.
    shifts = (np.cumsum(largest_first) - total) / np.arange(1, len(amounts) + 1)
    last = np.flatnonzero(largest_first >= shifts)[-1]
    return np.maximum(0, amounts - shifts[last])
