"""Speeds, links and availability that a caller of Python gives by client."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.shown_values import short
from offbeat_core.tables.validation_errors import error_prefix
from offbeat_core.user_code_errors import failure

from offbeat.data.user_examples import as_array
from offbeat.population.availability import Availability, Intervals
from offbeat.population.devices.bandwidth_traces import Trace
from offbeat.population.devices.client_devices import ConstantLink, Link, TraceLink
from offbeat.worlds.population import Population, check_link, check_step_seconds

_KEYS = ("step_seconds", "down_bytes_per_second", "up_bytes_per_second", "availability")


def separate_given(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a population's table without arrays and functions, and these."""
    given = {
        key: value
        for key in _KEYS
        if not isinstance(value := table.get(key), Mapping | str | bool | int | float | None)
        and getattr(value, "ndim", None) != 0  # a number of numpy or torch
    }
    return {key: value for key, value in table.items() if key not in given}, given


def with_given(population: Population, given: Mapping[str, Any]) -> Population:
    """Return a population with given values, by client or functions of its number.

    They are seconds per step; bytes per second, or a trace; or a client's intervals. A trace has rows of seconds and
    bytes per second, each until the next row; the last row ends it, and it repeats. Intervals are rows of start and end
    in virtual seconds, in order. An object with the methods of ``Availability`` is taken as it is.
    """
    clients = len(population.shards)
    changes: dict[str, Any] = {}
    for key, value in given.items():
        with error_prefix(f"population.{key}"):
            if key == "step_seconds":
                changes[key] = _numbers(_by_client(value, clients))
                check_step_seconds(changes[key])
            elif key == "availability":
                changes[key] = _availability(value, clients)
            else:
                link = _link(_by_client(value, clients))
                check_link(link)
                changes[key.removesuffix("_bytes_per_second")] = link
    return replace(population, devices=replace(population.devices, **changes))


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


def _link(values: list[NDArray[np.float64]]) -> Link:
    if not any(value.ndim for value in values):
        return ConstantLink(_numbers(values))
    traces = [_trace(client, value) for client, value in enumerate(values)]
    return TraceLink(traces, np.arange(len(traces)), np.zeros(len(traces)))


def _trace(client: int, rows: NDArray[np.float64]) -> Trace:
    if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise OffbeatError(f"client {client}'s trace must be two or more rows of seconds and bytes per second")
    seconds, rates = rows[:, 0] - rows[0, 0], rows[:-1, 1]
    if (np.diff(seconds) <= 0).any() or (rates < 0).any() or not rates.any():
        raise OffbeatError(f"client {client}'s trace must have rising seconds, and bytes per second of 0 or more")
    return Trace(f"client {client}", seconds, rates)


def _availability(value: Any, clients: int) -> Availability:
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
