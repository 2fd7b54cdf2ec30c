"""The Ed25519 keys that clients have signed shares with."""

from collections.abc import Iterable


class ClientKeys:
    """Each client's key, fixed by its first share; no two clients have the same.

    Args:
        entries: Clients and keys in hexadecimal, as ``entries`` returned them.
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
