"""Norms of counted updates, which bound the norms of later ones."""

import math
import statistics
from collections.abc import Iterable

from offbeat_core.local_plan import normaliser

from offbeat.algorithms.components import LocalPlan, Payload

_FACTOR = 100.0
_MIN_CLIENTS = 5
_MAX_CLIENTS = 100


LARGEST_WEIGHTED_NORM = 1e15
"""The largest norm of an update times its weight, unless the operator sets a limit of norms.

Ten thousand such updates have a sum that 32 bits hold. A step from any other sum is refused, and then all its updates
are lost: they were counted before it was known, and a sum does not tell which of them was too large.
"""


def norm_unit(payload: Payload, plan: LocalPlan, steps: int, reported: float) -> float:
    """Return the divisor of an update's norm.

    With it, the norms of visits of different lengths can be compared.

    For deltas the divisor is the normaliser a of the plan's SGD over ``steps`` steps, or the reported one if that is
    smaller, since FedNova divides by the reported one. For whole models, and without steps, the divisor is 1.

    Args:
        payload: What the client uploads.
        plan: The visit's plan.
        steps: Local steps taken, ≥ 0.
        reported: The normaliser that the client reports, ≥ 0; 0 counts as not reported.
    """
    if payload == "params" or steps == 0:
        return 1.0
    planned = normaliser(plan.prefix(steps))
    return min(planned, reported or planned)


class UsualNorms:
    """The largest norm that an update may have, for each ``norm_unit``.

    It is 100 times the usual norm. The usual norm is the median of the clients' latest norms, over the 5 to 100 clients
    that uploaded last. The largest median so far is kept: updates become shorter as a model learns, except the first
    ones of a new client.

    Args:
        clients: Number of clients N. With 3 or 4 there is no limit before all have uploaded. With 1 or 2 there is no
            limit at all, since neither client's norm is known to be usual.
        norms: Each client and its norm divided by the unit, least recently uploaded first, as ``entries`` returned
            them.
        usual: The earlier value of the attribute ``usual``.

    Attributes:
        usual: The largest median so far; 0 before there is one.
    """

    def __init__(self, clients: int, norms: Iterable[tuple[int, float]] = (), usual: float = 0.0) -> None:
        self._min_clients = min(clients, _MIN_CLIENTS) if clients > 2 else math.inf
        self._norms = dict(norms)
        self.usual = usual

    def add(self, client: int, norm: float) -> None:
        """Record the norm of a counted update, divided by its unit.

        A norm of 0, which follows from no steps, is ignored.
        """
        if norm == 0:
            return
        self._norms.pop(client, None)
        self._norms[client] = norm
        if len(self._norms) > _MAX_CLIENTS:
            del self._norms[next(iter(self._norms))]
        if len(self._norms) >= self._min_clients:
            self.usual = max(self.usual, statistics.median_low(self._norms.values()))

    @property
    def limit(self) -> float | None:
        """The largest accepted norm, for each unit; None for any finite one."""
        return _FACTOR * self.usual or None

    def entries(self) -> list[tuple[int, float]]:
        """Return the clients' latest norms as plain values."""
        return list(self._norms.items())
