"""The hours of the day in which users do least, from a user's file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.csv_columns import read_columns

_COLUMNS = {"client": pa.int64(), "hour": pa.int64(), "count": pa.float64()}
_HOURS = 24


def quietest_hours(path: str | Path, clients: int, hours: int) -> NDArray[np.bool_]:
    """Return in which hours of the day each client does least, by a file with ``client``, ``hour`` and ``count``.

    FedLaAvg's experiments with Sentiment140 have each client there "for eight hours each day, during which the client
    sends the least number of tweets" (Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under
    Intermittent Client Availability", section 6.1.3). The paper does not say whether these are adjacent; here they need
    not be. Of equally quiet hours the earlier ones after midnight are taken.

    Args:
        path: A CSV file. Clients are numbered from 0, hour 7 is the one from 7:00 to 8:00, and a count is how often
            something was done in it. Rows on the same client and hour add up; an hour without a row has the count 0.
        clients: How many clients there are, N.
        hours: How many hours to take, 1 … 24.

    Returns:
        bool ``(N, 24)``, ``hours`` of them in each row.

    Raises:
        OffbeatError: The file cannot be read, has a wrong row or none on a client; the message names the file and the
            row or the client. The header is row 1, and empty lines do not count.
    """
    path = Path(path)
    columns = read_columns(path, _COLUMNS)
    client, hour, count = columns["client"], columns["hour"], columns["count"]

    def refuse(wrong: NDArray[np.bool_], problem: Callable[[int], str]) -> None:
        if wrong.any():
            index = int(np.argmax(wrong))
            raise OffbeatError(f"{path}, row {index + 2}: {problem(index)}")

    refuse(
        (client < 0) | (client >= clients),
        lambda i: f"client is {client[i]}, but the {clients} clients are 0 … {clients - 1}",
    )
    refuse((hour < 0) | (hour >= _HOURS), lambda i: f"hour is {hour[i]}, but the hours of a day are 0 … {_HOURS - 1}")
    refuse(~(np.isfinite(count) & (count >= 0)), lambda i: f"count is {count[i]}, but must be finite and at least 0")
    unknown = np.bincount(client, minlength=clients) == 0
    if unknown.any():
        raise OffbeatError(f"{path} has no row on client {int(np.argmax(unknown))}: give each client's hourly counts")
    counts = np.zeros((clients, _HOURS))
    np.add.at(counts, (client, hour), count)
    there = np.zeros((clients, _HOURS), np.bool_)
    # A stable sort leaves equal counts in the order of the hours.
    np.put_along_axis(there, np.argsort(counts, axis=1, kind="stable")[:, :hours], True, axis=1)
    return there
