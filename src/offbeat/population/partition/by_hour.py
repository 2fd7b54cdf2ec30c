"""Everybody holds both classes, in shares that follow the hours at which they are there."""

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.partition.shards import by_owner, check_clients
from offbeat.randomness import Purpose, generator

# Shares are whole numbers of these: sums of floats would not always leave both classes enough.
_UNITS = 1_000_000


def by_hour(
    labels: NDArray[np.int64], middle_hours: NDArray[np.float64], alpha: float, seed: int
) -> list[NDArray[np.int64]]:
    """Give each client a share of positive labels that follows from when it is there.

    FedLaAvg's experiments with Sentiment140 "vary the label balance as a function of the time of day" (Yan et al.,
    "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1.3):
    they drop tweets at random until α of those sent in 0:00–1:00 are positive and 1 − α of those sent in 12:00–13:00,
    "and linearly interpolate for other hours of day". So α + (1 − 2α) · min(k, 24 − k) / 12 of those sent in hour k
    are positive, and with α = ½ the hour does not matter. A client is there in the hours in which its user sends least.
    What this leaves open for examples without times is done so:

    * A client's examples count as sent in one hour, opposite the middle of the time at which it is there: who is there
      around noon tweets around midnight and has the share α, who is there around midnight 1 − α. The paper's users
      tweet in many hours, so their shares are nearer to ½ with the same α.
    * All clients have the same number of examples, the largest for which there are enough of both classes. **The rest
      is not used**; the paper drops tweets too, but its clients differ in size.
    * Positive is the higher of the two labels. Fractions of an example are rounded so that the first clients' positive
      ones always add up to the nearest whole number.

    Args:
        labels: ``(n,)``, the examples' labels, two different ones.
        middle_hours: ``(N,)``, the middle of the time at which each client is there, in hours after midnight.
        alpha: The share of positive labels in the hour after midnight, α, 0 ≤ α ≤ 1.
        seed: The run's seed.

    Returns:
        One int64 array of example numbers a client, in random order.

    Raises:
        OffbeatError: There are no clients or more than examples, not two labels, or too few examples of one; or alpha
            is out of range.
    """
    clients = len(middle_hours)
    check_clients(len(labels), clients)
    if not 0 <= alpha <= 1:
        raise OffbeatError(f"alpha is {alpha}, but must be between 0 and 1")
    values, examples = np.unique(labels, return_counts=True)
    if len(values) != 2:
        raise OffbeatError(
            f"by_hour balances two labels, but the training examples have {len(values)}: take data with two classes"
        )
    hour = (np.floor(middle_hours).astype(np.int64) + 12) % 24
    share = np.rint(_UNITS * (alpha + (1 - 2 * alpha) * np.minimum(hour, 24 - hour) / 12)).astype(np.int64)
    size = _largest_size(examples.tolist(), int(share.sum()), clients)
    if size == 0:
        raise OffbeatError(
            f"{clients} clients cannot share {examples[0]} examples of class {values[0]} and {examples[1]} of class "
            f"{values[1]} so that the shares follow the hour: ask for fewer clients"
        )
    positive = np.diff((size * np.cumsum(share) + _UNITS // 2) // _UNITS, prepend=0)
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    owner = np.full(len(labels), -1)
    for value, sizes in zip(values, (size - positive, positive), strict=True):
        members = order[labels[order] == value][: sizes.sum()]
        owner[members] = np.repeat(np.arange(clients), sizes)
    return by_owner(owner, clients, random)


def _largest_size(examples: list[int], positive_units: int, clients: int) -> int:
    """Return how many examples each client can have, for the sum of their shares of positive ones."""
    wanted = (clients * _UNITS - positive_units, positive_units)
    return min(there * _UNITS // units for there, units in zip(examples, wanted, strict=True) if units)
