"""The share of clients that are available over a run, where quiet hours vary it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from offbeat_core.number_checks import is_number

from offbeat.population.availability import quiet_starts
from offbeat.runs.directory import Run

_DAY = 86_400.0
_EACH = 900.0  # seconds between the times that are looked at
_MOST_DAYS = 30  # more would be too thin to see
_MOST_CLIENTS = 2000  # that are looked at
_LEVELS = 20  # into which shares are rounded
_KEYS = ("hours", "first_hour", "spread_hours")
_LEAST = 0.2  # between the lowest share and the highest, so that it matters


@dataclass(frozen=True, eq=False)
class AvailableShare:
    """Adjacent intervals of time, and the share of available clients in each.

    Attributes:
        edges: ``(n + 1,)``, seconds from 0 on.
        shares: ``(n,)``, 0 … 1, rounded to 5 %.
    """

    edges: NDArray[np.float64]
    shares: NDArray[np.float64]


def available_share(runs: Sequence[Run], end_seconds: float) -> AvailableShare | None:
    """Return the share until the end, of the clients of the first run.

    None if it hardly varies, if the runs differ in it, or if a file or the user's own code decides it: a report reads
    nothing but the runs.
    """
    first = runs[0]
    if any(_settings(run) != _settings(first) for run in runs) or not 0 < end_seconds <= _MOST_DAYS * _DAY:
        return None
    clients, availability = _settings(first)
    values = [float(cast("float", value)) for value in map(availability.get, _KEYS) if is_number(value)]
    if availability.get("name") != "quiet_hours" or "path" in availability or len(values) < len(_KEYS):
        return None
    hours, first_hour, spread_hours = values
    starts = quiet_starts(min(clients, _MOST_CLIENTS), first_hour, spread_hours, first.seed)
    times = np.arange(0, end_seconds, _EACH) + _EACH / 2
    of_day = np.arange(_EACH / 2, _DAY, _EACH)
    of_day = (np.mod(of_day[:, None] - starts, _DAY) < 3600 * hours).mean(axis=1)
    shares = np.round(of_day[np.arange(len(times)) % len(of_day)] * _LEVELS) / _LEVELS
    if shares.max() - shares.min() < _LEAST:
        return None
    begins = np.flatnonzero(np.diff(shares, prepend=-1.0))
    return AvailableShare(np.append(_EACH * begins, end_seconds), shares[begins])


def _settings(run: Run) -> tuple[int, Mapping[str, Any]]:
    population = run.config["population"]
    availability = population.get("availability")
    return population["clients"], availability if isinstance(availability, Mapping) else {}
