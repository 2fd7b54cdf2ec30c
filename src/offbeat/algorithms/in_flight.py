"""Which client works from which version, so that an update counts once at most."""

from typing import Any

import torch


class InFlight:
    """The clients that an algorithm has given work to and not heard from, each with its version.

    A client has at most one entry; giving it work again replaces the old one. An entry that lapsed no longer
    takes up a slot, but its update is still expected.
    """

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._lapsed: set[int] = set()

    @property
    def slots_taken(self) -> int:
        """How many clients are at work and have not lapsed."""
        return len(self._versions) - len(self._lapsed)

    def add(self, client: int, version: int) -> None:
        """Note that the client now works from ``version``."""
        self._versions[client] = version
        self._lapsed.discard(client)

    def holds(self, client: int, version: int) -> bool:
        """Return whether the client's update from ``version`` is expected, lapsed or not."""
        return self._versions.get(client) == version

    def remove(self, client: int) -> None:
        """Forget the client, since its update came."""
        del self._versions[client]
        self._lapsed.discard(client)

    def lapse(self, client: int, version: int) -> bool:
        """Free the client's slot; return False if there was nothing to free."""
        if not self.holds(client, version) or client in self._lapsed:
            return False
        self._lapsed.add(client)
        return True

    def before(self, version: int) -> list[int]:
        """Return who is at work, and has not lapsed, from a version before this one."""
        return [client for client, own in self._versions.items() if own < version and client not in self._lapsed]

    def state_dict(self) -> dict[str, Any]:
        """Return the entries as three tensors of one length."""
        clients = list(self._versions)
        return {
            "clients": torch.tensor(clients, dtype=torch.int64),
            "versions": torch.tensor(list(self._versions.values()), dtype=torch.int64),
            "lapsed": torch.tensor([client in self._lapsed for client in clients], dtype=torch.bool),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from saved entries."""
        clients = state["clients"].tolist()
        self._versions = dict(zip(clients, state["versions"].tolist(), strict=True))
        self._lapsed = {client for client, lapsed in zip(clients, state["lapsed"].tolist(), strict=True) if lapsed}
