"""Shares of two classes that follow the hours at which clients are available."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.shards import check_clients, shards_by_owner

# Shares are integer multiples of 1 / _UNITS: with sums of floats, a class could run out of examples.
_UNITS = 1_000_000


def by_hour(
    labels: NDArray[np.int64], middle_hours: NDArray[np.float64], alpha: float, seed: int
) -> list[NDArray[np.int64]]:
    """Give each client a share of positive labels by its available hours.

    FedLaAvg's experiments with Sentiment140 "vary the label balance as a function of the time of day" (Yan et al.,
    "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability", section 6.1.3):
    they drop tweets at random until α of those sent in 0:00–1:00 are positive and 1 − α of those sent in 12:00–13:00,
    "and linearly interpolate for other hours of day". So α + (1 − 2α) · min(k, 24 − k) / 12 of those sent in hour k
    are positive, and with α = ½ the hour does not matter. A client is available in the hours in which its user sends
    least. For examples without times:

    * A client's examples count as sent in one hour, opposite the middle of its available time: a client available
      around noon has the share α (its user tweets around midnight), one available around midnight 1 − α. The paper's
      users tweet in many hours, so with the same α their shares are nearer to ½.
    * All clients have the same number of examples, the largest for which both classes suffice. **The other examples are
      not used**; the paper drops tweets too, but its clients differ in size.
    * Positive is the higher of the two labels. Fractions of an example are rounded so that the running sums of positive
      examples are the nearest integers.

    Args:
        labels: ``(n,)``, the examples' labels, with two different values.
        middle_hours: ``(N,)``, the middle of each client's available time, in hours after midnight.
        alpha: The share of positive labels in the hour after midnight, α, 0 ≤ α ≤ 1.
        seed: The run's seed.

    Returns:
        For each client its example numbers, int64, in random order.

    Raises:
        OffbeatError: There are fewer than one or more than n clients, not two labels, or too few examples of one label;
            or alpha is out of range.
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
    return shards_by_owner(owner, clients, random)


def _largest_size(examples: list[int], positive_units: int, clients: int) -> int:
    """Return the largest common size; ``positive_units`` sums the clients' shares."""
    wanted = (clients * _UNITS - positive_units, positive_units)
    return min(available * _UNITS // units for available, units in zip(examples, wanted, strict=True) if units)
