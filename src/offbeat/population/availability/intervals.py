"""Clients that are available in listed intervals, for instance of a CSV file."""

import math
from array import array
from bisect import bisect_right
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.population.csv_columns import ColumnType, check_numbers, check_rows, read_columns


class Intervals:
    """Clients available during their intervals [start, end) only.

    Adjacent intervals merge.

    Args:
        clients: Number of clients, N.
        client: int64 ``(M,)``, M ≥ 1, the client of each interval, 0 … N − 1. The intervals of each client are in order
            and do not overlap; clients may be mixed.
        start_seconds: float64 ``(M,)``, start of each interval, finite.
        end_seconds: float64 ``(M,)``, end of each interval, finite and above its start.
    """

    def __init__(
        self,
        clients: int,
        client: NDArray[np.int64],
        start_seconds: NDArray[np.float64],
        end_seconds: NDArray[np.float64],
    ) -> None:
        order = np.argsort(client, kind="stable")
        client, start_seconds, end_seconds = client[order], start_seconds[order], end_seconds[order]
        touches = (client[1:] == client[:-1]) & (start_seconds[1:] == end_seconds[:-1])
        begins, stops = np.append(True, ~touches), np.append(~touches, True)
        # Arrays of the standard library return plain floats and take a quarter of a list's memory.
        self._starts = array("d", start_seconds[begins].tobytes())
        self._ends = array("d", end_seconds[stops].tobytes())
        # Client i's intervals are those from _first[i] up to _first[i + 1].
        self._first: list[int] = np.searchsorted(client[begins], np.arange(clients + 1)).tolist()

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or the start of the client's next interval."""
        end = self._first[client + 1]
        index = bisect_right(self._ends, seconds, self._first[client], end)
        return max(self._starts[index], seconds) if index < end else math.inf

    def next_offline(self, client: int, seconds: float) -> float:
        """Return the end of this interval."""
        return self._ends[bisect_right(self._ends, seconds, self._first[client], self._first[client + 1])]


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
