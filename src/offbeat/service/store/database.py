"""The server's database: its tables, and the records of the log."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from sqlalchemy import event, exc

SCHEMA = 1
"""Raise it when the store or a checkpoint changes its form: a folder of another form is refused."""

_metadata = sa.MetaData()

meta = sa.Table("meta", _metadata, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text))

log = sa.Table(
    "log",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),  # JSON, with the outcome
    sa.Column("file", sa.Text),  # in updates/; null: the call has no update, or an unused one
    sa.Column("offset", sa.Integer),  # in the file
    sa.Column("size", sa.Integer),
    sa.Column("digest", sa.Text),  # SHA-256 of the update, also of one that does not count
)

clients = sa.Table(
    "clients",
    _metadata,
    sa.Column("client", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("enrolled", sa.Float, nullable=False),  # Unix seconds
    sa.Column("revoked", sa.Float),  # Unix seconds; null: not revoked
    sa.Column("token", sa.Text, unique=True, nullable=False),  # SHA-256
    sa.Column("expires", sa.Float),  # Unix seconds; null: never
    sa.Column("next_token", sa.Text, unique=True),  # replaces the token when it is first used
    sa.Column("next_expires", sa.Float),
    sa.Column("examples", sa.Integer),  # as declared; null: not yet
)

client_counts = sa.Table(
    "client_counts",
    _metadata,
    sa.Column("client", sa.Integer, primary_key=True),
    sa.Column("visits", sa.Integer, nullable=False),
    sa.Column("counted", sa.Integer, nullable=False),
    sa.Column("refused", sa.Integer, nullable=False),
    sa.Column("lost", sa.Integer, nullable=False),
    sa.Column("staleness_sum", sa.Integer, nullable=False),  # over counted updates
    sa.Column("state", sa.Text, nullable=False),  # of its latest visit: "closed", "working" or "lapsed"
    sa.Column("last_seen", sa.Float),  # Unix seconds; null: not seen yet
)

client_evaluations = sa.Table(
    "client_evaluations",
    _metadata,
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("client", sa.Integer, primary_key=True),
    sa.Column("examples", sa.Integer),  # null: not answered yet; 0: skipped
    sa.Column("metrics", sa.Text),  # JSON
)

other_tokens = sa.Table(
    "other_tokens",
    _metadata,
    sa.Column("token", sa.Text, primary_key=True),  # SHA-256
    sa.Column("kind", sa.Text, nullable=False),  # "enrolment" or "admin"
    sa.Column("uses", sa.Integer),  # left; null: any number
    sa.Column("expires", sa.Float),
    sa.Column("name", sa.Text, nullable=False),  # for people
    sa.Column("revoked", sa.Float),  # Unix seconds; null: not revoked
)

audit = sa.Table(
    "audit",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True),  # 1, 2, …
    sa.Column("entry", sa.Text, nullable=False),  # JSON
    sa.Column("digest", sa.Text, nullable=False),  # SHA-256 of the digest before and the entry
)


@dataclass(frozen=True)
class LogRecord:
    """A call that changed the coordinator, with the columns of the table ``log``.

    ``outcome`` is for counts by client: of ``receive`` whether the update counted and its staleness, of ``lapse`` the
    clients whose visits were lost. Other calls do not have one.
    """

    number: int  # 1, 2, …
    name: str
    arguments: dict[str, Any]  # plain values
    file: str | None = None
    offset: int | None = None
    size: int | None = None
    digest: str | None = None
    outcome: list[Any] | None = None

    def row(self) -> dict[str, Any]:
        """Return the record as a row of the table."""
        outcome = {} if self.outcome is None else {"outcome": self.outcome}
        values = {name: value for name, value in self.__dict__.items() if name != "outcome"}
        return {**values, "arguments": json.dumps({**self.arguments, **outcome})}

    @classmethod
    def of_row(cls, row: Mapping[Any, Any]) -> Self:
        """Return the record of a row of the table."""
        arguments = json.loads(row["arguments"])
        return cls(**{**row, "outcome": arguments.pop("outcome", None), "arguments": arguments})


def check_schema(folder: Path, found: int) -> None:
    """Raise ``OffbeatError`` unless the database of a folder has the present form."""
    if found != SCHEMA:
        raise OffbeatError(
            f"{folder} holds a run of another version of Offbeat (form {found}, this one reads {SCHEMA}): "
            "continue it with that version, or take another service.folder"
        )


def database_of(folder: Path) -> Path:
    """Return the database in a server's folder."""
    path = folder / "offbeat.sqlite"
    if not path.exists():
        raise OffbeatError(f"{folder} is not a server's folder: it does not hold offbeat.sqlite")
    return path


def open_read_only(path: Path, *, is_fixed: bool = False) -> sqlite3.Connection:
    """Open a database that exists, and that nothing changes if it ``is_fixed``."""
    # as_uri escapes the characters of a folder's name that have a meaning in a URI, such as # and %.
    return sqlite3.connect(f"{path.absolute().as_uri()}?{'immutable=1' if is_fixed else 'mode=ro'}", uri=True)


def numbers_of(folder: Path) -> list[int]:
    """Return the numbers that name safetensors files in a folder."""
    return [int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()]


def open_database(path: Path) -> sa.Engine:
    """Open the database, made if it is new; a commit returns once it is on disk."""
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    event.listen(engine, "connect", _prepare)
    try:
        with engine.begin() as connection:
            found = connection.exec_driver_sql("PRAGMA user_version").scalar() or 0
            if found != 0:
                check_schema(path.parent, found)
            _metadata.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA}")
    except BaseException as error:
        engine.dispose()
        if isinstance(error, exc.DatabaseError):
            is_full = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            remedy = ": free space there, outside the folder" if is_full else ""
            raise OffbeatError(f"cannot use {path}: {error.orig}{remedy}") from None
        raise
    return engine


def _prepare(connection: Any, _: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA busy_timeout = 10000")
