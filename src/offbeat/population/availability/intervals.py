"""Clients that are available in listed intervals."""

import math
from array import array
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray


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
