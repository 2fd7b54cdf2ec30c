"""A client's folder, held by one process at a time; its identity and audit heads."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError
from offbeat_core.files import append_durably, read_json, remove_durably, write_json
from offbeat_core.tokens import new_token


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's number and token at one server.

    ``renew_at`` is when to ask for another token, in seconds since 1970, or None for never; ``examples`` is how many
    examples the client has declared. With ``has_runs`` the server has several runs: the client is a site there, and
    has an identity in each run, whose token is the site's and is not in it.
    """

    server: str
    client: int
    token: str = field(repr=False)
    renew_at: float | None = None
    examples: int | None = None
    has_runs: bool = False


class ClientFolder:
    """The folder with all data that must outlive a client's process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock", blocking=False)

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise OffbeatError(f"another client is at work in {self.path}: give each a folder of its own") from None
        except OSError as error:
            raise OffbeatError(f"cannot write into {self.path}: {error.strerror}; take another folder") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lock.release()

    def identity(self, server: str) -> Identity | None:
        """Return the client's identity at this server; None if it has not enrolled."""
        identity = read_json(self.path / "identity.json", Identity, "take another folder, and enrol again")
        if identity is not None and identity.server != server:
            raise OffbeatError(
                f"{self.path} belongs to client {identity.client} of {identity.server}, not of {server}: "
                "take another folder"
            )
        return identity

    def first_token(self) -> str:
        """Return the token that the client enrols with, on disk before it is sent.

        A client whose enrolment was not answered thus asks again with the same token, and is the same client.
        """
        path = self.path / "enrolling.json"
        saved = read_json(path, dict[str, Any])
        if saved is None:
            saved = {"token": new_token("obc_")}
            write_json(path, saved)
        return str(saved.get("token"))

    def keep_identity(self, identity: Identity) -> None:
        """Write the client's identity to disk."""
        write_json(self.path / "identity.json", asdict(identity))
        remove_durably(self.path / "enrolling.json")


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
