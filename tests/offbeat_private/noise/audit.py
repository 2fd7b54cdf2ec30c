"""A two-sided audit of releases: how much they tell about clients that they may or may not hold.

Every client is a canary: its update is a random direction that the attacker knows, or zeros, by a coin. The attacker
knows the schedule and undoes the noise's correlation, then asks each canary's direction. For the right noise
the answers of both sorts are μ = √k/σ standard deviations apart. A larger distance is a leak, and a smaller one means
that there is more noise than was paid for, or that the attack is broken.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular, toeplitz
from scipy.special import binom

Vectors = NDArray[np.float64]


def audit(
    release: Callable[[int, Vectors], Vectors],
    *,
    length: int,
    canary_norm: float,
    participations: int = 10,
    versions: int = 200,
    bands: int = 1,
    clients: int = 1000,
    seed: int = 0,
) -> float:
    """Return the distance of canaries' answers with and without their update, in standard deviations.

    Args:
        release: Called with 1, 2, … and an array ``(updates, length)``; returns the released sum ``(length,)``.
        length: Coordinates of an update; 4,000 or more keep the canaries from disturbing each other.
        canary_norm: Norm of each canary's update.
        participations: Versions that take each client, ``versions / participations`` apart.
        versions: Releases.
        bands: Bands of the noise's correlation, which the attacker knows; 1: none.
        clients: How many canaries; the distance has a standard error of 2/√clients.
        seed: Seed of directions and coins.
    """
    random = np.random.default_rng(seed)
    directions = random.standard_normal((clients, length))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    is_present = random.integers(2, size=clients).astype(bool)
    separation = versions // participations
    takes = np.arange(versions)[:, None] % separation == np.arange(clients) % separation
    releases = np.stack(
        [
            release(number, canary_norm * directions[takes[number - 1]] * is_present[takes[number - 1], None])
            for number in range(1, versions + 1)
        ]
    )
    bands_of_inverse = np.zeros(versions)
    powers = np.arange(min(bands, versions))
    bands_of_inverse[: len(powers)] = binom(0.5, powers) * (-1.0) ** powers  # of (1 − x)^½
    decorrelate = toeplitz(bands_of_inverse, np.zeros(versions))
    # What each client moves once the noise is independent again, and the same for the releases: the matched filter.
    filters = solve_triangular(decorrelate, takes.astype(float), lower=True)
    answers = solve_triangular(decorrelate, releases, lower=True) @ directions.T
    scores = (filters * answers).sum(axis=0) / np.linalg.norm(filters, axis=0)
    present, absent = scores[is_present], scores[~is_present]
    spread = np.sqrt((present.var(ddof=1) + absent.var(ddof=1)) / 2)
    return float((present.mean() - absent.mean()) / spread)
