"""The norms of updates that counted, by which one that is far too long is known."""

import math
import statistics
from collections.abc import Iterable

from offbeat.algorithms.components import LocalPlan, Payload
from offbeat.training.trainer import normaliser

_TIMES = 100.0
_FEWEST = 5  # clients
_MOST = 100  # clients whose norms are kept


def norm_unit(payload: Payload, plan: LocalPlan, steps: int, said: float) -> float:
    """Return by what norms are divided to be compared: the normaliser of the steps, so that plans may differ.

    It is the smaller one of what the client says and of the plan's SGD: some algorithms divide by the first.

    Args:
        payload: What the client uploads; whole models are as long after one step as after many.
        plan: The visit's plan.
        steps: Local steps taken.
        said: The normaliser that the client says; 0 if it says nothing.
    """
    if payload == "params" or steps == 0:
        return 1.0
    planned = normaliser(plan.prefix(steps))
    return min(planned, said or planned)


class UsualNorms:
    """The largest norm that an update may have: 100 times what has been usual.

    Usual is the median over the clients' latest norms, of 5 to 100 clients that were heard last; the largest that it
    has been so far, since updates grow shorter as a model learns, but not those of a client that is new.

    Args:
        clients: Number of clients N. If there are fewer than 5, all have to be heard before there is a limit; of two
            nobody knows which one is usual, so there is none.
        norms: Client and norm, least recently heard first, as ``entries`` returned them.
        usual: As ``usual`` was.

    Attributes:
        usual: The largest median so far; 0 before there is one.
    """

    def __init__(self, clients: int, norms: Iterable[tuple[int, float]] = (), usual: float = 0.0) -> None:
        self._fewest = min(clients, _FEWEST) if clients > 2 else math.inf
        self._norms = dict(norms)
        self.usual = usual

    def add(self, client: int, norm: float) -> None:
        """Record the norm of an update that counted; one of 0 steps says nothing of what is usual."""
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
        """The largest norm that is accepted now; None for any finite one."""
        return _TIMES * self.usual or None

    def entries(self) -> list[tuple[int, float]]:
        """Return the clients' latest norms as plain values."""
        return list(self._norms.items())
