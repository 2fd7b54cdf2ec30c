"""The current state of a run, for the live page."""

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from offbeat.algorithms.components import Algorithm
from offbeat.coordinator import Assignment
from offbeat.service.engine.operations import Operations

_MOST_POINTS = 64


def participation(counts: Sequence[int]) -> dict[str, Any]:
    """Return counted updates by client as a curve, and their Gini coefficient.

    With counts c_1 ≤ … ≤ c_N the Gini coefficient is Σ (2i − N − 1) c_i / (N Σ c_i): 0 if all are equal, 1 − 1/N if one
    client has all. The curve has the counts in descending order, at 64 clients at most: each pair is a client's place
    from 0, and its count. ``without`` is the number of clients without a counted update.
    """
    ascending = np.sort(np.asarray(counts, dtype=np.int64))
    number, total = len(ascending), int(ascending.sum())
    gini = None
    if total:
        ranks = np.arange(1, number + 1, dtype=np.float64)
        gini = float(((2 * ranks - number - 1) * ascending).sum() / (number * total))
    places = np.unique(np.linspace(0, number - 1, min(number, _MOST_POINTS)).round().astype(np.int64))
    curve = [[int(place), int(ascending[number - 1 - place])] for place in places]
    return {"curve": curve, "gini": gini, "without": int((ascending == 0).sum())}


_MOST_VISITS = 20


def live_state(service: Operations) -> dict[str, Any]:
    """Return the state without the time, as plain values that are valid JSON."""
    engine, lease_seconds = service.engine, service.settings.lease_seconds
    coordinator = engine.coordinator
    status = service.status().model_dump(mode="json", exclude={"run_seconds", "evaluated", "evaluated_by_clients"})
    return {
        "status": status,
        "run": engine.run.state.run_id,
        "lease_seconds": lease_seconds,
        "allowed_staleness": coordinator.late_updates.max_staleness,
        "staleness": sorted(engine.run.history.staleness.items()),
        "buffer": _buffer(coordinator.algorithm),
        "visits": _visits(service, lease_seconds),
        "participation": participation(service.engine.tally.counted(len(service.accounts))),
        "refusals": service.metrics.refusals_by_kind(),
    }


def _buffer(algorithm: Algorithm) -> dict[str, Any]:
    """Return the updates in the buffer, how many close it, and sealed sums."""
    count = algorithm.buffer.count if hasattr(algorithm, "buffer") else 0
    size = getattr(algorithm, "buffer_size", None) or getattr(algorithm, "cohort", None)
    return {"count": count, "size": size, "sealed": len(algorithm.sealed)}


def _visits(service: Operations, lease_seconds: float | None) -> dict[str, Any]:
    """Return the number of visits that hold a slot, and those whose leases end first."""
    coordinator, sites = service.engine.coordinator, service.accounts.sites
    visits = coordinator.visits
    held = [one for one in visits.open_assignments() if visits.has_slot(one.client)]
    first = heapq.nsmallest(_MOST_VISITS, held, key=lambda one: one.lease_until)
    shown = [
        {
            "client": one.client,
            "name": sites[one.client].name if one.client in sites else "",
            "visit": one.visit,
            "staleness": coordinator.algorithm.version - one.version,
            "lease_from": _lease_from(one, lease_seconds),
            "lease_until": one.lease_until if math.isfinite(one.lease_until) else None,
        }
        for one in first
    ]
    return {"total": len(held), "first": shown}


def _lease_from(assignment: Assignment, lease_seconds: float | None) -> float | None:
    """Return when the lease began or was renewed; None if it is not known."""
    if lease_seconds is None or assignment.lease_until >= assignment.visit_until:
        return None
    return assignment.lease_until - lease_seconds
