"""Opening of a log by its URL, with the checks that its promises rest on."""

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from sqlalchemy import event, exc

from offbeat.service.log.log import LogUnavailableError
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.tables import prepare, shown

_CONNECT_SECONDS = 5
_SESSION = {
    # A session that hangs, or whose machine is gone, must not keep a row's number for long.
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "5s",
    "statement_timeout": "30s",
    "tcp_user_timeout": "5s",
}
_SOCKET = {
    # Nor may this side wait longer for a database whose machine is gone.
    "connect_timeout": _CONNECT_SECONDS,
    "tcp_user_timeout": 5000,  # milliseconds
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
_PRAGMAS = (
    "page_size = 16384",  # large ones make small updates cheap
    "auto_vacuum = INCREMENTAL",  # so that a full disk gets back the space of updates that were forgotten
    "secure_delete = ON",  # an update that was forgotten is in no backup
    "journal_mode = WAL",
    "wal_autocheckpoint = 256",  # pages, 4 MiB
    "synchronous = FULL",
    "busy_timeout = 10000",
)
_SYNCED_COMMITS = ("on", "remote_apply", "remote_write", "local")


def open_log(
    url: str | sa.URL,
    make_room: Callable[[str], object] = lambda problem: None,
    enter: Callable[[sa.Engine], str] = prepare,
) -> SqlLog:
    """Open a log; make its tables if the database does not have them.

    Args:
        url: ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``, as SQLAlchemy takes them.
        make_room: Called with the problem when SQLite's disk is full.
        enter: Returns the run's id; ``existing_run`` makes nothing.

    Raises:
        OffbeatError: The database cannot be used, is of another form, or may lose what it has acknowledged.
    """
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError:
        raise OffbeatError(f"store.log is not a URL: {url!r}") from None
    match parsed.get_backend_name():
        case "sqlite":
            engine, problem = _sqlite_engine(parsed), f"cannot use {parsed.database}"
        case "postgresql":
            engine, problem = _postgres_engine(parsed), f"cannot use the log {shown(parsed)}"
        case name:
            raise OffbeatError(f"store.log cannot be {name!r}: allowed are sqlite and postgresql")
    try:
        return SqlLog(engine, make_room, enter)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, exc.DBAPIError):
            is_full = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            remedy = ": free space there, outside the folder" if is_full else ""
            raise OffbeatError(f"{problem}: {_first_line(error)}{remedy}") from None
        if isinstance(error, LogUnavailableError):
            raise OffbeatError(str(error)) from None
        raise


def sqlite_url(path: Path) -> sa.URL:
    """Return the URL of a log in a file."""
    return sa.URL.create("sqlite", database=str(path))


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url)

    def prepare(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    event.listen(engine, "connect", prepare)
    return engine


def _postgres_engine(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args=_SOCKET,
        pool_size=1,
        pool_pre_ping=False,
    )

    def prepare(connection: Any, record: Any) -> None:
        _check_session(connection, shown(url))
        _check_promises(connection, shown(url))
        record.info["place"] = _place(connection)

    event.listen(engine, "connect", prepare)
    # The pool would also log, with a traceback, that it cannot use a broken connection again.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    return engine


def _check_session(connection: Any, name: str) -> None:
    """Raise ``OffbeatError`` behind a pooler; else set what a session may wait for."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        # A pooler makes up the number of the process that it names to its clients.
        if cursor.fetchone() != (connection.info.backend_pid,):
            raise OffbeatError(
                f"the log {name} is behind a pooler such as pgbouncer, which may give each transaction another "
                "session: give PostgreSQL's own address"
            )
        # Not as options of the connection, which poolers refuse before they can be told apart.
        settings = ", ".join(f"set_config('{key}', '{value}', false)" for key, value in _SESSION.items())
        cursor.execute(f"SELECT {settings}")
    connection.commit()


def _place(connection: Any) -> dict[str, Any]:
    """Return what differs in a restored copy, or after a replica has taken over."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT system_identifier::text, pg_walfile_name(pg_current_wal_lsn()) FROM pg_control_system()")
        system, file = cursor.fetchone()
    connection.rollback()
    return {"system": system, "timeline": int(file[:8], 16)}


def _check_promises(connection: Any, name: str) -> None:
    """Raise ``OffbeatError`` if the server may lose rows.

    Raises:
        LogUnavailableError: It takes none, perhaps until a failover has ended.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'), "
            "current_setting('synchronous_commit'), pg_is_in_recovery()"
        )
        fsync, full_pages, commits, is_replica = cursor.fetchone()
    connection.rollback()
    if is_replica:
        raise LogUnavailableError(f"the log {name} is a replica, which takes no rows: give the primary's address")
    if fsync != "on" or full_pages != "on":
        raise OffbeatError(f"the log {name} may lose rows: set fsync and full_page_writes to on in postgresql.conf")
    if commits not in _SYNCED_COMMITS:
        raise OffbeatError(f"the log {name} may lose rows: synchronous_commit is {commits}; set it to on")


def _first_line(error: exc.DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]
