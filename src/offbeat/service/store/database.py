"""The server's database: the log, and its records."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from sqlalchemy import event, exc

SCHEMA = 2
"""Raise it when the store or a checkpoint changes its form: a folder of another form is refused."""

COORDINATOR = "coordinator"
"""The owner of the coordinator's calls in the log."""
RUN = "run"
"""The owner of what begins, configures, pauses or extends the run."""

_metadata = sa.MetaData()

log = sa.Table(
    "log",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),  # the part of the server's state that the record changes
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),  # JSON, with the outcome
    sa.Column("file", sa.Text),  # in updates/; null: the call has no update, or an unused one
    sa.Column("offset", sa.Integer),  # in the file
    sa.Column("size", sa.Integer),
    sa.Column("digest", sa.Text),  # SHA-256 of the update, also of one that does not count
    sa.Column("entry", sa.Text),  # of the audit log, JSON; null: none
    sa.Column("head", sa.Text),  # SHA-256 of the audit log up to that entry
)

is_rare = log.c.owner != COORDINATOR
"""Whether a record is none of the coordinator's calls, which are most of the log."""

sa.Index("rare", log.c.number, sqlite_where=is_rare)
RARE = f"owner != '{COORDINATOR}'"
"""The same in SQL."""


class Change(NamedTuple):
    """A change of the server's state, as a record of the log names it."""

    owner: str
    name: str
    arguments: dict[str, Any]  # plain values


@dataclass(frozen=True)
class LogRecord:
    """A change of the server's state, with the columns of the table ``log``.

    Most are calls of the coordinator. ``outcome`` is for counts by client: of ``receive`` whether the update counted
    and its staleness, of ``lapse`` the clients whose visits were lost. Other calls do not have one.
    """

    number: int  # 1, 2, …
    name: str
    arguments: dict[str, Any]  # plain values
    file: str | None = None
    offset: int | None = None
    size: int | None = None
    digest: str | None = None
    outcome: list[Any] | None = None
    owner: str = COORDINATOR
    entry: str | None = None
    head: str | None = None

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


def records_after(database: sqlite3.Connection, number: int) -> Iterator[LogRecord]:
    """Yield the records with later numbers, in order."""
    names = [column.name for column in log.columns]
    query = f"SELECT {', '.join(names)} FROM log WHERE number > ? ORDER BY number"
    for row in database.execute(query, (number,)):
        yield LogRecord.of_row(dict(zip(names, row, strict=True)))


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
