"""The heads of the server's audit log that a client has seen."""

from pathlib import Path

from offbeat_core.files import append_durably


class AuditHeads:
    """The file ``audit-heads``: a line for each new head, the latest one last.

    Earlier heads stay, since a server that wrote its log anew gives out heads of the new one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "audit-heads"
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        self._is_torn = bool(lines) and not lines[-1].endswith(b"\n")  # by a kill
        self._last = None if not lines or self._is_torn else lines[-1].decode("ascii", "replace").strip()

    def keep(self, head: str | None) -> None:
        """Write a head to disk if it is not the latest one; None is not a head."""
        if head is None or head == self._last:
            return
        append_durably(self._path, b"\n" * self._is_torn + f"{head}\n".encode("ascii"))
        self._last, self._is_torn = head, False
