"""The server's memory of past uploads: digests, norms and clients' keys."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from offbeat_core.local_plan import normaliser

from offbeat.algorithms.components import LocalPlan, Payload

LARGEST_WEIGHTED_NORM = 1e15
"""The largest norm of an update times its weight, unless the operator sets a limit of norms.

Ten thousand such updates have a sum that 32 bits hold. A step from any other sum is refused, and then all its updates
are lost: they were counted before it was known, and a sum does not tell which of them was too large.
"""

_FACTOR = 100.0
_MIN_CLIENTS = 5
_MAX_CLIENTS = 100


class Digests:
    """The digest of each client's last upload, and of its last counted one.

    ``entries`` are clients, visits and digests as the method returned them: a client's last counted upload first.
    """

    def __init__(self, entries: Iterable[tuple[int, int, str]] = ()) -> None:
        self._last: dict[int, tuple[int, str]] = {}
        self._counted: dict[int, tuple[int, str]] = {}
        for client, visit, digest in entries:
            if client in self._last:
                self._counted[client] = self._last[client]
            self._last[client] = (visit, digest)

    def add(self, client: int, visit: int, digest: str, *, counted: bool) -> None:
        """Record the digest of an upload."""
        self._last[client] = (visit, digest)
        if counted:
            self._counted[client] = (visit, digest)

    def forget(self, client: int) -> None:
        """Delete the digests of a client."""
        self._last.pop(client, None)
        self._counted.pop(client, None)

    def get(self, client: int, visit: int) -> str | None:
        """Return the digest of a visit's upload; None if it is unknown by now."""
        known = (self._last.get(client), self._counted.get(client))
        return next((entry[1] for entry in known if entry is not None and entry[0] == visit), None)

    def entries(self) -> list[tuple[int, int, str]]:
        """Return all digests as plain values."""
        return [
            (client, *upload)
            for client, last in self._last.items()
            for upload in (self._counted.get(client), last)
            if upload is not None
        ]


class UsualNorms:
    """The largest norm that an update may have, for each ``norm_unit``.

    It is 100 times the usual norm. The usual norm is the median of the clients' latest norms, over the 5 to 100 clients
    that uploaded last. The largest median so far is kept: updates become shorter as a model learns, except the first
    ones of a new client.

    Args:
        clients: Number of clients N. With 3 or 4 there is no limit before all have uploaded. With 1 or 2 there is no
            limit at all, since neither client's norm is known to be usual.
        norms: As ``entries`` returned them: each client and its norm divided by the unit, least recent first.
        usual: The largest median so far, which is an attribute; 0 before there is one.
    """

    def __init__(self, clients: int, norms: Iterable[tuple[int, float]] = (), usual: float = 0.0) -> None:
        self.grow(clients)
        self._norms = dict(norms)
        self.usual = usual

    def grow(self, clients: int) -> None:
        """Take so many clients N into account."""
        self._min_clients = min(clients, _MIN_CLIENTS) if clients > 2 else math.inf

    def add(self, client: int, norm: float) -> None:
        """Record the norm of a counted update, divided by its unit, unless it is 0."""
        if norm == 0:
            return
        self._norms.pop(client, None)
        self._norms[client] = norm
        if len(self._norms) > _MAX_CLIENTS:
            del self._norms[next(iter(self._norms))]
        if len(self._norms) >= self._min_clients:
            self.usual = max(self.usual, statistics.median_low(self._norms.values()))

    def forget(self, client: int) -> None:
        """Delete the norm of a client."""
        self._norms.pop(client, None)

    @property
    def limit(self) -> float | None:
        """The largest accepted norm, for each unit; None for any finite one."""
        return _FACTOR * self.usual or None

    def entries(self) -> list[tuple[int, float]]:
        """Return the clients' latest norms as plain values."""
        return list(self._norms.items())


def norm_unit(payload: Payload, plan: LocalPlan, steps: int, reported: float) -> float:
    """Return the divisor that makes norms of visits of any length comparable.

    For deltas it is the normaliser a of the plan's SGD over ``steps`` steps, or the ``reported`` one (0: none) if that
    is smaller, since FedNova divides by the reported one. For whole models, and without steps, it is 1.
    """
    if payload == "params" or steps == 0:
        return 1.0
    planned = normaliser(plan.prefix(steps))
    return min(planned, reported or planned)


class ClientKeys:
    """The Ed25519 key of each client's shares; no two clients have the same.

    ``entries`` are clients and keys in hexadecimal, as the method returned them.
    """

    def __init__(self, entries: Iterable[tuple[int, str]] = ()) -> None:
        self._keys = {client: bytes.fromhex(key) for client, key in entries}
        self._clients = {key: client for client, key in self._keys.items()}

    def add(self, client: int, key: bytes) -> None:
        """Record the key of a client's share."""
        self._keys[client] = key
        self._clients[key] = client

    def allows(self, client: int, key: bytes) -> bool:
        """Return whether a share of the client may be signed with a key."""
        return self._keys.get(client, key) == key and self._clients.get(key, client) == client

    def client(self, key: bytes) -> int | None:
        """Return the client that a key belongs to; None if it is unknown."""
        return self._clients.get(key)

    def entries(self) -> list[tuple[int, str]]:
        """Return all clients and keys as plain values."""
        return [(client, key.hex()) for client, key in self._keys.items()]


@dataclass(frozen=True)
class UploadHistory:
    """The memory of past uploads."""

    digests: Digests  # identify a repeated upload
    norms: UsualNorms  # bound the norms of later updates
    keys: ClientKeys  # of masked updates

    def forget(self, client: int) -> None:
        """Delete what is held of a client.

        Except its key, for which participations are counted.
        """
        self.digests.forget(client)
        self.norms.forget(client)

    def state_dict(self) -> dict[str, Any]:
        """Return the history as plain values."""
        return {
            "digests": self.digests.entries(),
            "norms": self.norms.entries(),
            "usual_norm": self.norms.usual,
            "client_keys": self.keys.entries(),
        }


def load_history(clients: int, state: Mapping[str, Any] | None = None) -> UploadHistory:
    """Return the history of N clients from a ``state_dict``, an empty one without."""
    if state is None:
        return UploadHistory(Digests(), UsualNorms(clients), ClientKeys())
    norms = UsualNorms(clients, state["norms"], state["usual_norm"])
    return UploadHistory(Digests(state["digests"]), norms, ClientKeys(state["client_keys"]))
