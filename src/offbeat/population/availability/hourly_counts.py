"""The hours of the day with the lowest counts, from a user's CSV file."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.population.csv_columns import ColumnType, check_numbers, check_rows, read_columns

_COLUMNS: dict[str, ColumnType] = {"client": "int64", "hour": "int64", "count": "float64"}
_HOURS = 24


def quietest_hours(path: str | Path, clients: int, hours: int) -> NDArray[np.bool_]:
    """Return each client's hours with the lowest counts (``client,hour,count``).

    In FedLaAvg's experiments with Sentiment140, each client is available "for eight hours each day, during which the
    client sends the least number of tweets" (Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup
    under Intermittent Client Availability", section 6.1.3). The paper does not say whether these hours are adjacent;
    here they need not be. Of equal counts, the earlier hours after midnight are taken.

    Args:
        path: A CSV file with these columns. Clients are numbered from 0, and hour 7 is 7:00 to 8:00. Rows of the same
            client and hour add up; an hour without a row has count 0.
        clients: Number of clients, N.
        hours: Number of hours to take, 1 … 24.

    Returns:
        bool ``(N, 24)``, ``hours`` of them true in each row.

    Raises:
        OffbeatError: The file cannot be read, a row is wrong, or a client has no row; the message names the file and
            the row or the client.
    """
    path = Path(path)
    columns = read_columns(path, _COLUMNS)
    client, hour, count = columns["client"], columns["hour"], columns["count"]
    check_numbers(path, "client", client, clients, f"{clients} clients")
    check_numbers(path, "hour", hour, _HOURS, "hours of a day")
    check_rows(
        path,
        ~(np.isfinite(count) & (count >= 0)),
        lambda i: f"count is {count[i]}, but must be finite and at least 0",
    )
    unknown = np.bincount(client, minlength=clients) == 0
    if unknown.any():
        raise OffbeatError(f"{path} has no row on client {int(np.argmax(unknown))}: give each client's hourly counts")
    counts = np.zeros((clients, _HOURS))
    np.add.at(counts, (client, hour), count)
    is_quiet = np.zeros((clients, _HOURS), np.bool_)
    # A stable sort keeps equal counts in the order of the hours.
    np.put_along_axis(is_quiet, np.argsort(counts, axis=1, kind="stable")[:, :hours], True, axis=1)
    return is_quiet
