"""Speeds, links and availability that a caller of Python gives for each client.

They are arrays, or functions of the client's number.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import short
from offbeat_core.user_code_errors import failure

from offbeat.data.user_examples import as_array
from offbeat.population.availability import Availability, Intervals
from offbeat.population.devices.bandwidth_traces import Trace, trace_within_limits
from offbeat.population.devices.client_devices import ConstantLink, Link, TraceLink


def given_step_seconds(value: Any, clients: int) -> NDArray[np.float64]:
    """Return each client's seconds per step, ``(N,)``."""
    return _numbers(_by_client(value, clients))


def given_link(value: Any, clients: int) -> Link:
    """Return the clients' bytes per second, or traces of them.

    A trace has rows of seconds and bytes per second, each until the next row; the last row ends it, and it repeats.
    """
    values = _by_client(value, clients)
    if not any(value.ndim for value in values):
        return ConstantLink(_numbers(values))
    traces = [_trace(client, value) for client, value in enumerate(values)]
    return TraceLink(traces, np.arange(len(traces)), np.zeros(len(traces)))


def given_availability(value: Any, clients: int) -> Availability:
    """Return when clients are available.

    Given are each client's intervals, in order: rows of start and end in virtual seconds. An object with the methods of
    ``Availability`` is taken as it is.
    """
    if hasattr(value, "next_available") and hasattr(value, "next_offline"):
        return cast("Availability", value)
    rows = [each.reshape(0, 2) if each.size == 0 else each for each in _by_client(value, clients)]
    for client, intervals in enumerate(rows):
        if intervals.ndim != 2 or intervals.shape[1] != 2 or not np.isfinite(intervals).all():
            raise OffbeatError(f"client {client}'s intervals must be rows of start and end, in seconds")
        if (np.diff(intervals.ravel())[::2] <= 0).any() or (np.diff(intervals.ravel(), prepend=0.0) < 0).any():
            raise OffbeatError(f"client {client}'s intervals must be in order, without overlap, from 0 on")
    starts, ends = np.concatenate(rows).T
    if not len(starts):
        raise OffbeatError("no client is ever available")
    numbers = np.repeat(np.arange(clients), [len(each) for each in rows])
    return Intervals(clients, numbers, np.ascontiguousarray(starts), np.ascontiguousarray(ends))


def _by_client(value: Any, clients: int) -> list[NDArray[np.float64]]:
    try:
        if callable(value):
            values = list(map(value, range(clients)))
        else:
            values = value.to_pylist() if hasattr(value, "to_pylist") else list(value)  # the former of pyarrow
    except Exception as error:
        raise failure("it failed", error) from error
    if len(values) != clients:
        raise OffbeatError(f"has {len(values)} values, but there are {clients} clients")
    return [_array(client, each) for client, each in enumerate(values)]


def _array(client: int, value: Any) -> NDArray[np.float64]:
    try:
        array = as_array(value, "")
        if array.size and array.dtype.kind not in "fiuO":  # a text, a time or a boolean would become a number
            raise TypeError
        return array.astype(np.float64)
    except (OffbeatError, TypeError, ValueError):
        raise OffbeatError(f"client {client} has {short(value)}, but needs a number, or rows of numbers") from None


def _numbers(values: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    for client, value in enumerate(values):
        if value.ndim or not (value > 0 and np.isfinite(value)):
            raise OffbeatError(f"client {client} has {value}, but needs a finite number above 0")
    return np.array(values)


def _trace(client: int, rows: NDArray[np.float64]) -> Trace:
    if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise OffbeatError(f"client {client}'s trace must be two or more rows of seconds and bytes per second")
    seconds, rates = rows[:, 0] - rows[0, 0], rows[:-1, 1]
    if (np.diff(seconds) <= 0).any() or (rates < 0).any() or not rates.any():
        raise OffbeatError(f"client {client}'s trace must have rising seconds, and bytes per second of 0 or more")
    return trace_within_limits(f"client {client}", seconds, rates)
