"""A client's folder: who it is. One process at a time holds it."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from offbeat.errors import OffbeatError
from offbeat.service.accounts.tokens import new_token
from offbeat.service.client.durable import read_json, remove, write_json


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is.

    Attributes:
        server: The server's URL.
        client: The client's number there.
        token: Its token, a secret.
        renew_at: When to ask for another token, in seconds since 1970; None for never.
        examples: How many examples it has declared; None for none.
    """

    server: str
    client: int
    token: str = field(repr=False)
    renew_at: float | None = None
    examples: int | None = None


class Folder:
    """The folder in which a client keeps what must outlive its process; made if it is not there.

    Raises:
        OffbeatError: On entering it: another process holds it, or it cannot be written.
    """

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
        """Return who the client is at this server; None if it has not enrolled.

        Raises:
            OffbeatError: The folder is of another server's client, or broken.
        """
        path = self.path / "identity.json"
        saved = read_json(path)
        if saved is None:
            return None
        try:
            identity = Identity(**saved)
        except TypeError:
            raise OffbeatError(f"{path} is broken: take another folder, and enrol again") from None
        if identity.server != server:
            raise OffbeatError(
                f"{self.path} belongs to client {identity.client} of {identity.server}, not of {server}: "
                "take another folder"
            )
        return identity

    def own_token(self) -> str:
        """Return the token that the client has made for itself, on disk before anybody hears of it.

        So a client whose enrolment was not answered asks again with the same token, and is the same client.
        """
        path = self.path / "enrolling.json"
        saved = read_json(path)
        if saved is None:
            saved = {"token": new_token("obc_")}
            write_json(path, saved)
        return str(saved.get("token"))

    def keep_identity(self, identity: Identity) -> None:
        """Write down who the client is."""
        write_json(self.path / "identity.json", asdict(identity))
        remove(self.path / "enrolling.json")
