"""Everybody holds what they wrote."""

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.partition.shards import by_owner
from offbeat.randomness import Purpose, generator


def by_user(users: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Make each client one of the data's users.

    With fewer clients than users, the clients are users chosen at random, each equally likely, and **the examples of
    the others are not used**. Clients are in the order of the users' numbers; numbers that no example has are no users.

    Args:
        users: ``(n,)``, which user each example is from.
        clients: How many clients, N.
        seed: The run's seed.

    Returns:
        One int64 array of example numbers a client, in random order.

    Raises:
        OffbeatError: There are no clients, or more than users.
    """
    present, number = np.unique(users, return_inverse=True)
    if not 1 <= clients <= len(present):
        raise OffbeatError(
            f"{clients} clients cannot be had from {len(present)} users, as each client is a user: "
            f"there must be between 1 and {len(present)} clients"
        )
    random = generator(seed, Purpose.PARTITION)
    client_of_user = np.full(len(present), -1)
    client_of_user[np.sort(random.choice(len(present), clients, replace=False))] = np.arange(clients)
    return by_owner(client_of_user[number], clients, random)
