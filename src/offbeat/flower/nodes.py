"""Flower's nodes as numbered clients."""

from collections.abc import Iterable
from typing import Any


class Nodes:
    """The client's number of each node.

    A node keeps its number while it is offline. A new node gets the lowest number that no node has; if there is none,
    that of the node which has been offline longest, for instance because it came back under another id.

    Args:
        clients: Number of clients N.
    """

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._numbers: dict[int, int] = {}  # by node; offline ones first, in the order in which they were seen last
        self._online: set[int] = set()

    @property
    def available(self) -> dict[int, int]:
        """The nodes that are online, by client."""
        return {client: node for node, client in self._numbers.items() if node in self._online}

    def see(self, online: Iterable[int]) -> list[int]:
        """Record which nodes are online; return the clients that are not any more.

        New nodes are numbered in this order; those for which there is no number are left out.
        """
        online = list(online)
        before = self.available
        for node in online:
            if node not in self._numbers:
                number = self._number(online)
                if number is None:
                    continue
                self._numbers[node] = number
            self._numbers[node] = self._numbers.pop(node)  # as the one that was seen last
        self._online = set(online)
        now = self.available
        return [client for client, node in before.items() if now.get(client) != node]

    def _number(self, online: list[int]) -> int | None:
        taken = set(self._numbers.values())
        free = next((number for number in range(self._clients) if number not in taken), None)
        if free is not None:
            return free
        oldest = next((node for node in self._numbers if node not in online), None)
        return None if oldest is None else self._numbers.pop(oldest)

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers; no node is online after a restart."""
        # As text: a number of 64 bits is not exact in every JSON.
        return {"nodes": [[str(node), client] for node, client in self._numbers.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._numbers = {int(node): client for node, client in state["nodes"]}
