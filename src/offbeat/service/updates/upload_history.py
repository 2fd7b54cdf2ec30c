"""The server's memory of past uploads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.service.masked.client_keys import ClientKeys
from offbeat.service.updates.digests import Digests
from offbeat.service.updates.usual_norms import UsualNorms


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
