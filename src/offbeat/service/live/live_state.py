"""The current state of a run, for the live page."""

import heapq
import math
from typing import Any

from offbeat.algorithms.components import Algorithm
from offbeat.coordinator.calls import Assignment
from offbeat.service.engine.service import Service
from offbeat.service.live.participation_curve import participation
from offbeat.service.server_settings import ServerSettings

_MOST_VISITS = 20


def live_state(service: Service, settings: ServerSettings) -> dict[str, Any]:
    """Return the state without the time, as plain values that are valid JSON."""
    engine = service.engine
    coordinator = engine.coordinator
    status = service.status().model_dump(mode="json", exclude={"run_seconds", "evaluated", "evaluated_by_clients"})
    return {
        "status": status,
        "run": service.run_id,
        "problem": engine.problem,
        "lease_seconds": settings.lease_seconds,
        "allowed_staleness": coordinator.late_updates.max_staleness,
        "staleness": sorted(engine.run.history.staleness.items()),
        "buffer": _buffer(coordinator.algorithm),
        "visits": _visits(service, settings.lease_seconds),
        "participation": participation(service.engine.tally.counted(len(service.accounts))),
        "refusals": service.metrics.refusals_by_kind(),
    }


def _buffer(algorithm: Algorithm) -> dict[str, Any]:
    """Return the number of updates in the buffer, and the number that closes it.

    The latter, ``size``, is None if the algorithm does not close its buffer by a number. ``sealed`` is the number of
    sums that wait for the helper. An algorithm without a buffer holds 0 updates.
    """
    count = algorithm.buffer.count if hasattr(algorithm, "buffer") else 0
    size = getattr(algorithm, "buffer_size", None) or getattr(algorithm, "cohort", None)
    return {"count": count, "size": size, "sealed": len(algorithm.sealed)}


def _visits(service: Service, lease_seconds: float | None) -> dict[str, Any]:
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
            "lease_until": _finite(one.lease_until),
        }
        for one in first
    ]
    return {"total": len(held), "first": shown}


def _lease_from(assignment: Assignment, lease_seconds: float | None) -> float | None:
    """Return when the lease began or was renewed; None if it is not known.

    That is without leases, and for a lease that the end of its visit shortens.
    """
    if lease_seconds is None or assignment.lease_until >= assignment.visit_until:
        return None
    return assignment.lease_until - lease_seconds


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
