"""The server's memory of past uploads: digests and receipts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.service.masked.client_keys import ClientKeys
from offbeat.service.updates.usual_norms import UsualNorms


class Digests:
    """The SHA-256 of each client's last upload, and of its last counted one.

    Args:
        entries: Client, visit and digest, as ``entries`` returned them; a client's last counted upload comes first.
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

    def get(self, client: int, visit: int) -> str | None:
        """Return the digest of a visit's upload; None if it is unknown by now."""
        known = (self._last.get(client), self._counted.get(client))
        return next((entry[1] for entry in known if entry is not None and entry[0] == visit), None)

    def entries(self) -> list[tuple[int, int, str]]:
        """Return all digests as plain values."""
        plain: list[tuple[int, int, str]] = []
        for client, last in self._last.items():
            counted = self._counted.get(client)
            if counted is not None:
                plain.append((client, *counted))
            plain.append((client, *last))
        return plain


@dataclass(frozen=True)
class UploadHistory:
    """The clients' latest digests and norms.

    Attributes:
        digests: Identify a repeated upload.
        norms: Bound the norms of later updates.
        keys: The keys of masked updates.
    """

    digests: Digests
    norms: UsualNorms
    keys: ClientKeys

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
    return UploadHistory(Digests(state["digests"]), norms, ClientKeys(state.get("client_keys", ())))
