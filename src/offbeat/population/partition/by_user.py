"""Shards of one user each."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.population.partition.shards import shards_by_owner


def by_user(users: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Make each client one of the data's users.

    With fewer clients than users, the clients are a uniformly random choice of users, and **the examples of the other
    users are not used**. Clients are in the order of the users' numbers; users without examples are ignored.

    Args:
        users: ``(n,)``, the user of each example.
        clients: Number of clients, N.
        seed: The run's seed.

    Returns:
        For each client its example numbers, int64, in random order.

    Raises:
        OffbeatError: There are fewer than one or more clients than users.
    """
    present, number = np.unique(users, return_inverse=True)
    if not 1 <= clients <= len(present):
        raise OffbeatError(
            f"{clients} clients cannot be made from {len(present)} users, as each client is a user: "
            f"there must be between 1 and {len(present)} clients"
        )
    random = generator(seed, Purpose.PARTITION)
    client_of_user = np.full(len(present), -1)
    client_of_user[np.sort(random.choice(len(present), clients, replace=False))] = np.arange(clients)
    return shards_by_owner(client_of_user[number], clients, random)
