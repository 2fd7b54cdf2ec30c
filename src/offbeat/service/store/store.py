"""What outlives the server: a folder with a database and files.

```
server.lock          held by the one server that uses the folder
offbeat.sqlite       who may speak, and the log of all calls that changed the coordinator
checkpoints/7.safetensors     the coordinator after the log's record 7
models/12.safetensors         version 12 of the model, while somebody works from it
updates/             whole updates, each in a file of its own, and segments that hold many small ones
partial/             uploads that are not whole yet
reserve              keeps space back, for a checkpoint on a disk that is full
```

An update's bytes are on disk before the log's record that refers to them is, and both before the client is told so. A
checkpoint covers the records up to its number; updates that no later record refers to are deleted.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy import event, exc

from offbeat.errors import OffbeatError

SCHEMA = 3
"""Raise it when the store or a checkpoint changes its form: a folder of another form is refused."""

_OTHERS = 0o077  # the permissions of all but the owner

_metadata = sa.MetaData()

meta = sa.Table("meta", _metadata, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text))

log = sa.Table(
    "log",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),  # JSON
    sa.Column("file", sa.Text),  # in updates/; where the update is, if there is one and it counts
    sa.Column("offset", sa.Integer),
    sa.Column("size", sa.Integer),
    sa.Column("digest", sa.Text),  # the update's SHA-256
)

clients = sa.Table(
    "clients",
    _metadata,
    sa.Column("client", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("token", sa.Text, unique=True),  # SHA-256; null: revoked
    sa.Column("expires", sa.Float),  # Unix seconds; null: never
    sa.Column("next_token", sa.Text, unique=True),  # takes the token's place when it is first used
    sa.Column("next_expires", sa.Float),
    sa.Column("examples", sa.Integer),  # how many the client has declared; null: none yet
)

other_tokens = sa.Table(
    "other_tokens",
    _metadata,
    sa.Column("token", sa.Text, primary_key=True),  # SHA-256
    sa.Column("kind", sa.Text, nullable=False),  # "enrolment" or "admin"
    sa.Column("uses", sa.Integer),  # that are left; null: any number
    sa.Column("expires", sa.Float),
    sa.Column("name", sa.Text),  # for people; null: an earlier version made it
    sa.Column("revoked", sa.Float),  # Unix seconds; null: it is not
)


@dataclass(frozen=True)
class Record:
    """One line of the log: a call that changed the coordinator."""

    number: int  # 1, 2, …
    name: str
    arguments: dict[str, Any]  # plain values
    file: str | None = None
    offset: int | None = None
    size: int | None = None
    digest: str | None = None

    def row(self) -> dict[str, Any]:
        """Return it as a row of the table."""
        return {**self.__dict__, "arguments": json.dumps(self.arguments)}


class Store:
    """The folder, opened by one server at a time.

    Args:
        folder: Made if it is not there.

    Raises:
        OffbeatError: Another server uses it, it cannot be written, or another version of Offbeat made it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            for name in ("", "checkpoints", "models", "updates", "partial"):
                (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = FileLock(folder / "server.lock")
            self._lock.acquire(timeout=0)
            _close_to_others(folder)
        except Timeout:
            raise OffbeatError(f"{folder} is in use by another server: stop it, or take another folder") from None
        except OSError as error:
            raise OffbeatError(f"cannot use the folder {folder}: {error.strerror}") from None
        self.database_path = folder / "offbeat.sqlite"
        self.database = open_database(self.database_path)

    def close(self) -> None:
        """Let another server use the folder."""
        self.database.dispose()
        self._lock.release()

    def get_meta(self, key: str) -> str | None:
        """Return what was kept under a key, None if nothing was."""
        with self.database.connect() as connection:
            return connection.execute(sa.select(meta.c.value).where(meta.c.key == key)).scalar()

    def records(self, after: int) -> Iterator[Record]:
        """Yield the log's records with numbers above this one, in order."""
        query = sa.select(log).where(log.c.number > after).order_by(log.c.number)
        try:
            with self.database.connect() as connection:
                for row in connection.execution_options(yield_per=1000).execute(query):
                    values = dict(row._mapping)  # pyright: ignore[reportPrivateUsage]
                    yield Record(**{**values, "arguments": json.loads(values["arguments"])})
        except (exc.DatabaseError, ValueError) as error:
            raise OffbeatError(f"{self.database_path} is broken ({error}): restore a backup") from error

    def last_number(self) -> int:
        """Return the number of the log's last record, 0 if it is empty."""
        with self.database.connect() as connection:
            return connection.execute(sa.select(sa.func.max(log.c.number))).scalar() or 0


def _close_to_others(folder: Path) -> None:
    """Take all permissions of others from a folder and what is in it, which an earlier version may have left.

    Raises:
        OSError: The folder belongs to another user.
    """
    if os.name == "nt":
        return
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & _OTHERS and not path.is_symlink():
                path.chmod(mode & ~_OTHERS)


def open_database(path: Path) -> sa.Engine:
    """Open the database, and make its tables if it is new; a commit returns once it is on disk.

    Raises:
        OffbeatError: It is broken, or another version of Offbeat made it.
    """
    engine = sa.create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _prepare)
    try:
        with engine.begin() as connection:
            found = connection.exec_driver_sql("PRAGMA user_version").scalar() or 0
            if found not in (0, SCHEMA):
                age = "a newer" if found > SCHEMA else "an earlier"
                raise OffbeatError(
                    f"{path.parent} holds a run of {age} version of Offbeat (form {found}, this one reads {SCHEMA}): "
                    "continue it with that version, or take another service.folder"
                )
            _metadata.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA}")
    except exc.DatabaseError as error:
        raise OffbeatError(f"cannot use {path}: {error.orig}") from None
    return engine


def _prepare(connection: Any, _: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA busy_timeout = 10000")


def sync_file(path: Path) -> None:
    """Wait until a file's bytes are on disk."""
    with path.open("rb") as file:
        os.fdatasync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
