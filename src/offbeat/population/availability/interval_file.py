"""Availability intervals from a user's CSV file."""

from pathlib import Path

import numpy as np
from offbeat_core.errors import OffbeatError

from offbeat.population.availability.intervals import Intervals
from offbeat.population.csv_columns import ColumnType, check_numbers, check_rows, read_columns

_COLUMNS: dict[str, ColumnType] = {"client": "int64", "start_seconds": "float64", "end_seconds": "float64"}


def intervals_from_file(path: str | Path, clients: int) -> Intervals:
    """Return the intervals of a CSV file ``client,start_seconds,end_seconds``.

    Clients are numbered from 0. Their rows may be mixed, but the rows of each client are in order and do not overlap. A
    client without a row is never available.

    Raises:
        OffbeatError: The file cannot be read or is empty, or a row is wrong; the message names file and row. The header
            is row 1, and empty lines do not count.
    """
    path = Path(path)
    columns = read_columns(path, _COLUMNS)
    client, start, end = columns["client"], columns["start_seconds"], columns["end_seconds"]
    if len(client) == 0:
        raise OffbeatError(f"{path} has no rows: no client would ever be available")
    check_numbers(path, "client", client, clients, f"{clients} clients")
    check_rows(
        path,
        ~(np.isfinite(start) & (start >= 0)),
        lambda i: f"start_seconds is {start[i]}, but must be at least 0, the run's start",
    )
    check_rows(
        path,
        ~(np.isfinite(end) & (end > start)),
        lambda i: f"end_seconds is {end[i]}, but must be finite and above start_seconds, {start[i]}",
    )
    order = np.argsort(client, kind="stable")
    overlaps = np.zeros(len(client), np.bool_)
    overlaps[order[1:]] = (client[order[1:]] == client[order[:-1]]) & (start[order[1:]] < end[order[:-1]])
    check_rows(
        path,
        overlaps,
        lambda i: f"client {client[i]}'s interval begins before its last one ends: sort them, without overlap",
    )
    return Intervals(clients, client, start, end)
