"""Digests of each client's last uploads, which identify a repeated upload."""

from collections.abc import Iterable


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
