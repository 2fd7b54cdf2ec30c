"""The norms of updates that counted, by which one that is far too long is known."""

import math
import statistics
from collections.abc import Iterable

from offbeat.algorithms.components import LocalPlan, Payload
from offbeat_client.local_plan import normaliser

_TIMES = 100.0
_FEWEST = 5  # clients
_MOST = 100  # clients whose norms are kept


def norm_unit(payload: Payload, plan: LocalPlan, steps: int, said: float) -> float:
    """Return the number by which an update's norm is divided, so that norms of different numbers of steps compare.

    For deltas it is the normaliser a of the plan's SGD over these steps, or the one that the client reports if that is
    smaller, since FedNova divides by the reported one. For whole models, and without steps, it is 1.

    Args:
        payload: What the client uploads.
        plan: The visit's plan.
        steps: Local steps taken, ≥ 0.
        said: The normaliser that the client reports, ≥ 0; 0 counts as not reported.
    """
    if payload == "params" or steps == 0:
        return 1.0
    planned = normaliser(plan.prefix(steps))
    return min(planned, said or planned)


class UsualNorms:
    """The largest norm that an update may have, for each ``norm_unit``: 100 times the usual norm.

    The usual norm is the median of the clients' latest norms, over the 5 to 100 clients that were heard last. The
    largest median so far is kept: updates grow shorter as a model learns, but the first ones of a new client do not.

    Args:
        clients: Number of clients N. With 3 or 4 all have to be heard before there is a limit. With 1 or 2 there is
            none, since nobody knows whose norm is usual.
        norms: Client and norm divided by its unit, least recently heard first, as ``entries`` returned them.
        usual: As ``usual`` was.

    Attributes:
        usual: The largest median so far; 0 before there is one.
    """

    def __init__(self, clients: int, norms: Iterable[tuple[int, float]] = (), usual: float = 0.0) -> None:
        self._fewest = min(clients, _FEWEST) if clients > 2 else math.inf
        self._norms = dict(norms)
        self.usual = usual

    def add(self, client: int, norm: float) -> None:
        """Record the norm, divided by its unit, of an update that counted; 0, as after no steps, is left out."""
        if norm == 0:
            return
        self._norms.pop(client, None)
        self._norms[client] = norm
        if len(self._norms) > _MOST:
            del self._norms[next(iter(self._norms))]
        if len(self._norms) >= self._fewest:
            self.usual = max(self.usual, statistics.median_low(self._norms.values()))

    @property
    def limit(self) -> float | None:
        """The largest norm that is accepted now, for each unit; None for any finite one."""
        return _TIMES * self.usual or None

    def entries(self) -> list[tuple[int, float]]:
        """Return the clients' latest norms as plain values."""
        return list(self._norms.items())
