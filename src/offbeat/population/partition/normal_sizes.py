"""Normally distributed numbers of examples."""

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.partition.shards import whole_sizes

_MAX_SIGMA = 1e6


def normal_sizes(examples: int, clients: int, sigma: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw how many examples each client has.

    The sizes are drawn with mean n/N and standard deviation sigma · n/N. So that they add up to n and are at least 1,
    all are shifted by the same amount, which keeps their spread, and what would be below 1 is 1. With a large sigma
    these are many, and the spread is smaller than asked for. FedLaAvg's experiments with MNIST have sigma = 1/6 (Yan
    et al., "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability",
    section 6.1).

    Args:
        examples: How many examples there are, n.
        clients: How many clients, 1 ≤ N ≤ n.
        sigma: The sizes' standard deviation as a fraction of their mean, 0 ≤ sigma ≤ 10⁶. With 0, sizes differ by at
            most one.
        random: Where the N normal numbers come from.

    Returns:
        int64 ``(N,)``, each at least 1; they add up to n.

    Raises:
        OffbeatError: sigma is out of range.
    """
    if not 0 <= sigma <= _MAX_SIGMA:
        raise OffbeatError(f"sigma is {sigma}, but must be between 0 and {_MAX_SIGMA:g}")
    # abs, because −0.0 is a sigma too, but numpy refuses it.
    wanted = random.normal(0.0, abs(sigma) * examples / clients, clients)
    above_one = _shifted(wanted, examples - clients)
    return 1 + whole_sizes(np.cumsum(above_one))


def _shifted(amounts: NDArray[np.float64], total: int) -> NDArray[np.float64]:
    """Return max(0, amounts − s) with the s for which they add up to ``total`` ≥ 0."""
    largest_first = np.sort(amounts)[::-1]
    # The s that there would be if just the 1, 2, … largest stayed above 0; the right one leaves just those above it.
    shifts = (np.cumsum(largest_first) - total) / np.arange(1, len(amounts) + 1)
    last = np.flatnonzero(largest_first >= shifts)[-1]
    return np.maximum(0, amounts - shifts[last])
