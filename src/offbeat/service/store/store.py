"""The server's folder.

```
server.lock          held by the one server that uses the folder
offbeat.sqlite       the log of all that has changed the server's state
checkpoints/7.safetensors     the state after the log's record 7
models/12.safetensors         version 12 of the model, while a visit needs it
updates/             complete updates: large ones in files of their own, small ones in segments
partial/             uploads that are not complete yet
reserve              keeps space back for a checkpoint on a full disk
noise-secret         the secret of the noise of private sums without a helper
```

An update's bytes are on disk before the log's record that refers to them, and both before the client gets its receipt.
A checkpoint covers the records up to its number; updates without a later record are deleted.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa
from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError
from sqlalchemy import exc

from offbeat.service.audit.verification import LogHead
from offbeat.service.store.database import LogRecord, is_rare, log, open_database

_LOCK_SECONDS = 0.5  # a command that looks whether a server runs holds the lock for an instant
_OTHERS = 0o077  # the permissions of all but the owner


class Store:
    """The folder, which one server opens at a time; made if it does not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            for name in ("", "checkpoints", "models", "updates", "partial"):
                (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = FileLock(folder / "server.lock")
            self._lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.02)
        except Timeout:
            raise OffbeatError(f"{folder} is in use by another server: stop it, or take another folder") from None
        except OSError as error:
            raise _unusable(folder, error) from None
        try:
            _close_to_others(folder)
            self.database_path = folder / "offbeat.sqlite"
            self.database = open_database(self.database_path)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise _unusable(folder, error) from None
            raise

    def close(self) -> None:
        """Let another server use the folder."""
        self.database.dispose()
        self._lock.release()

    def records(self, after: int) -> Iterator[LogRecord]:
        """Yield the log's records with numbers above ``after``, in order."""
        return self._records(log.c.number > after)

    def records_of(self, owner: str) -> Iterator[LogRecord]:
        """Yield all records of an owner other than the coordinator, in order."""
        return self._records(is_rare & (log.c.owner == owner))

    def audit_head(self) -> LogHead:
        """Return the end of the audit log."""
        entries = sa.select(sa.func.count(), sa.func.max(log.c.number)).where(is_rare & log.c.head.is_not(None))
        with self.database.connect() as connection:
            count, last = connection.execute(entries).one()
            head = connection.execute(sa.select(log.c.head).where(log.c.number == last)).scalar()
        return LogHead() if head is None else LogHead(count, head)

    def has_calls(self) -> bool:
        """Return whether the log has calls of the coordinator."""
        with self.database.connect() as connection:
            return connection.execute(sa.select(1).where(~is_rare).limit(1)).scalar() is not None

    def _records(self, which: sa.ColumnElement[bool]) -> Iterator[LogRecord]:
        query = sa.select(log).where(which).order_by(log.c.number)
        try:
            with self.database.connect() as connection:
                for row in connection.execution_options(yield_per=1000).execute(query):
                    yield LogRecord.of_row(row._mapping)  # pyright: ignore[reportPrivateUsage]
        except (exc.DatabaseError, ValueError) as error:
            raise OffbeatError(f"{self.database_path} is broken ({error}): restore a backup") from error


def _unusable(folder: Path, error: OSError) -> OffbeatError:
    return OffbeatError(f"cannot use the folder {folder}: {error.strerror}: set service.folder")


def _close_to_others(folder: Path) -> None:
    if os.name == "nt":
        return
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & _OTHERS and not path.is_symlink():
                path.chmod(mode & ~_OTHERS)
