"""Partitions that are given: by the data's users, or by a user's CSV file."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.population.csv_columns import ColumnType, check_numbers, check_rows, read_columns
from offbeat.population.partition.shards import check_clients, shards_by_owner


def by_user(users: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Make each client one of the data's users.

    With fewer clients than users, the clients are a uniformly random choice of users, and **the examples of the other
    users are not used**. Clients are in the order of the users' numbers; users without examples are ignored.

    ``users``, ``(n,)``, are those of the examples; there are at most as many clients.
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


_COLUMNS: dict[str, ColumnType] = {"client": "int64", "example": "int64"}


def from_file(path: Path, examples: int, clients: int) -> list[NDArray[np.int64]]:
    """Divide the examples as a CSV file ``client,example`` specifies.

    Each row gives an example to a client, both numbered from 0, in any order. Examples without a row are not used.

    Args:
        path: The file, UTF-8, not compressed.
        examples: Number of examples, n.
        clients: Number of clients, N.

    Returns:
        For each client its example numbers, in an order that is random but always the same.

    Raises:
        OffbeatError: Also if the file cannot be read; a client or an example does not exist; an example occurs twice;
            or a client has none. The message names the file and the row or the client. The header is row 1, and empty
            lines do not count.
    """
    check_clients(examples, clients)
    columns = read_columns(path, _COLUMNS)
    client, example = columns["client"], columns["example"]
    check_numbers(path, "client", client, clients, "clients")
    check_numbers(path, "example", example, examples, "examples")
    rows = np.arange(len(example))
    first = np.empty(examples, np.int64)
    # numpy keeps the last of several values for one index; in reverse order that is the first row.
    first[example[::-1]] = rows[::-1]
    check_rows(
        path,
        first[example] != rows,
        lambda i: (
            f"example {example[i]} was already given to client {client[first[example[i]]]} in row "
            f"{first[example[i]] + 2}; an example can be given once"
        ),
    )
    idle = np.flatnonzero(np.bincount(client, minlength=clients) == 0)
    if len(idle):
        raise OffbeatError(
            f"{path}: client {idle[0]} has no examples, but each of 0 … {clients - 1} needs at least one"
        )
    owner = np.full(examples, -1)
    owner[example] = client
    return shards_by_owner(owner, clients, generator(0, Purpose.PARTITION))
