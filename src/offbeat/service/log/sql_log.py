"""A log in SQLite or PostgreSQL."""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from sqlalchemy import exc

from offbeat.service.log.log import LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.signs_of_life import SeenLeader, SeenServer, SignOfLife, forget, leader_of, servers_of, show
from offbeat.service.log.tables import bodies, is_rare, log, prepare

T = TypeVar("T")

_FORGOTTEN_AT_ONCE = 100  # small updates
_READ_AT_ONCE = 10_000  # rows
_COLUMNS = [column for column in log.c if column.name != "run"]
_columns_of = attrgetter(*(column.name for column in _COLUMNS))

END_HUNG = """
SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE relation = 'log'::regclass AND mode = 'RowExclusiveLock' AND granted AND usename = current_user
  AND pid <> pg_backend_pid() AND xact_start < now() - interval '2 seconds'
"""
"""A session that is cut off in an append keeps the next row's number.

PostgreSQL ends it by itself only if it waits for a new statement; here it waits for more rows, too.
"""

# SQLite's errors that may pass while the server runs. After any other the file's content is unknown.
_TEMPORARY = ("FULL", "READONLY", "CANTOPEN", "BUSY")


class SqlLog:
    """A log in tables, used from a thread of its own.

    The row that an append names as the last one never changes once it is there, and two rows cannot have one number. So
    it does not matter what others commit between the look at that row and the insertion: either one of them has taken
    the next number, and the insertion fails, or nobody has.

    Args:
        engine: The database; a commit is durable.
        make_room: Called with the problem when SQLite's disk is full.
        enter: Returns the id of the run whose log it is; see ``tables``.

    Attributes:
        run: That id.
        place: The database that the last question was put to; None if it does not tell.
    """

    def __init__(
        self,
        engine: sa.Engine,
        make_room: Callable[[str], object] = lambda problem: None,
        enter: Callable[[sa.Engine], str] = prepare,
    ) -> None:
        self._engine = engine
        self._make_room = make_room
        self._is_sqlite = engine.dialect.name == "sqlite"
        # As text, since SQLAlchemy would take as long to build the statement as SQLite takes to carry it out.
        make: Any = type(engine.dialect)
        dialect = make(paramstyle="qmark" if self._is_sqlite else "format")
        self._inserts = {table: str(sa.insert(table).compile(dialect=dialect)) for table in (log, bodies)}
        is_row = (log.c.run == sa.bindparam("run")) & (log.c.number == sa.bindparam("number"))
        self._find_epoch = str(sa.select(log.c.epoch).where(is_row).compile(dialect=dialect))
        self._thread = ThreadPoolExecutor(1, "log")
        self._server = secrets.token_hex(8)  # the key of this server's signs of life
        self._has_shown = False
        self.place: dict[str, Any] | None = None
        self.run = enter(engine)

    async def append(self, rows: Sequence[Row], *, after: tuple[int, int]) -> None:
        """Append rows; see ``Log``."""
        await self._in_thread(lambda: self._append(rows, after))

    async def read(self, after: int, limit: int) -> list[Row]:
        """Return rows; see ``Log``."""
        return await self._in_thread(lambda: self.read_now(log.c.number > after, limit))

    async def newest(self, which: sa.ColumnElement[bool], limit: int) -> list[Row]:
        """Return the newest rows; see ``Log``."""
        query = sa.select(*_COLUMNS).where((log.c.run == self.run) & which).order_by(log.c.number.desc()).limit(limit)

        def read() -> list[Row]:
            with self.connected() as connection:
                return [Row(*row) for row in connection.execute(query)]

        return await asyncio.to_thread(read)

    async def last_epoch(self) -> int:
        """Return the last row's epoch; see ``Log``."""
        return await self._in_thread(self._last_epoch)

    async def forget_bodies(self, last: int) -> None:
        """Delete small updates; see ``Log``."""
        # A part at a time, so that appends need not wait for all of them.
        while await self._in_thread(lambda: self._forget_bodies(last)):
            pass

    async def rows_of(self, owner: str) -> list[Row]:
        """Return an owner's rows; see ``Log``."""
        return await self._in_thread(lambda: self.read_now(is_rare & (log.c.owner == owner)))

    async def redact(self, text: str, change: Callable[[Row], Row | None]) -> int:
        """Change rows; see ``Log``."""
        number, last = 0, await self._in_thread(self.last_number_now)
        # A part at a time, so that appends need not wait for all of them.
        for after in range(0, last, _READ_AT_ONCE):
            number += await self._in_thread(partial(self._redact, after, text, change))
        return number

    async def tidy(self) -> None:
        """Give back the space of SQLite's write-ahead log and of its free pages."""
        if self._is_sqlite:
            with suppress(exc.OperationalError):  # there is no space for that
                await self._in_thread(self._shrink)

    async def beat(self, epoch: int, name: str) -> None:
        """Show that the leader of an epoch lives.

        Nothing rests on it but who tries to lead.

        Raises:
            ReplacedError: The leader of a later epoch has shown itself.
            LogUnavailableError: The log cannot be reached.
        """
        await self._in_thread(lambda: self._show(SignOfLife(name, epoch, 0, leads=True)))

    async def stand_by(self, number: int, epoch: int, name: str) -> None:
        """Show that a server lives which has followed the log to a row.

        Raises:
            LogUnavailableError: The log cannot be reached.
        """
        await self._in_thread(lambda: self._show(SignOfLife(name, epoch, number, leads=False)))

    async def end_hung(self) -> None:
        """End the sessions of other servers that have been appending for two seconds.

        Raises:
            LogUnavailableError: The log cannot be reached.
        """
        if not self._is_sqlite:
            await self._in_thread(self._end_hung)

    async def leader(self) -> SeenLeader | None:
        """Return the last leader that has shown itself; None if there was none.

        Raises:
            LogUnavailableError: The log cannot be reached.
        """
        return await self._in_thread(self.leader_now)

    def leader_now(self) -> SeenLeader | None:
        """Return the last leader that has shown itself, in this thread."""
        with self.connected() as connection:
            return leader_of(connection, self.run)

    def servers_now(self) -> list[SeenServer]:
        """Return the servers that have shown themselves, in this thread."""
        with self.connected() as connection:
            return servers_of(connection, self.run)

    def answer_seconds_now(self) -> float:
        """Return how long the database takes to answer a question, in this thread."""
        with self.connected() as connection:
            connection.execute(sa.select(sa.literal(1)))  # which may open the connection
            began = time.perf_counter()
            connection.execute(sa.select(sa.literal(1)))
            return time.perf_counter() - began

    def last_number_now(self) -> int:
        """Return the number of the last durable row, in this thread; 0 without."""
        with self.connected() as connection:
            return connection.execute(sa.select(sa.func.max(log.c.number)).where(log.c.run == self.run)).scalar() or 0

    def newest_now(self, owner: str) -> Row | None:
        """Return the last row of an owner that is not the coordinator; None without."""
        own = sa.select(sa.func.max(log.c.number)).where((log.c.run == self.run) & is_rare & (log.c.owner == owner))
        return next(iter(self.read_now(log.c.number == own.scalar_subquery())), None)

    def read_now(self, which: sa.ColumnElement[bool], limit: int | None = None) -> list[Row]:
        """Return the rows for which a condition on ``log``'s columns holds, in order."""
        joined = log.outerjoin(bodies, (bodies.c.run == log.c.run) & (bodies.c.number == log.c.number))
        query = sa.select(*_COLUMNS, bodies.c.body).select_from(joined).where((log.c.run == self.run) & which)
        with self.connected() as connection:
            return [Row(*row) for row in connection.execute(query.order_by(log.c.number).limit(limit))]

    def close(self) -> None:
        """Close the database, and end the thread, once what it does is done."""
        self._thread.shutdown()
        if self._has_shown:
            with suppress(exc.DBAPIError), self._engine.begin() as connection:
                forget(connection, self.run, self._server)
        self._engine.dispose()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _append(self, rows: Sequence[Row], after: tuple[int, int]) -> None:
        try:
            with self._engine.connect() as connection:
                self._insert(connection, rows, after)
                try:
                    connection.commit()
                except exc.DBAPIError as error:
                    if self._is_sqlite:  # which says whether a commit has held; a broken connection does not
                        raise
                    raise UnknownOutcomeError(_line(error)) from error
        except exc.IntegrityError as error:
            raise ReplacedError(f"the log has another row {after[0] + 1}") from error
        except exc.DBAPIError as error:
            raise self._unavailable(error) from error

    def _insert(self, connection: sa.Connection, rows: Sequence[Row], after: tuple[int, int]) -> None:
        number, epoch = after
        if number and connection.exec_driver_sql(self._find_epoch, (self.run, number)).scalar() != epoch:
            raise ReplacedError(f"the log has no row {number} of epoch {epoch}")
        connection.exec_driver_sql(self._inserts[log], [(self.run, *_columns_of(row)) for row in rows])
        small = [(self.run, row.number, row.body) for row in rows if row.body is not None]
        if small:
            connection.exec_driver_sql(self._inserts[bodies], small)

    def _last_epoch(self) -> int:
        query = sa.select(log.c.epoch).where(log.c.run == self.run).order_by(log.c.number.desc()).limit(1)
        with self.connected() as connection:
            return connection.execute(query).scalar() or 0

    def _show(self, sign: SignOfLife) -> None:
        try:
            with self._engine.begin() as connection:
                self.place = connection.info.get("place")
                show(connection, self.run, self._server, sign)
                self._has_shown = True
        except exc.DBAPIError as error:
            raise self._unavailable(error) from error

    @contextmanager
    def connected(self) -> Generator[sa.Connection]:
        """Lend a connection to this thread; ``LogUnavailableError`` if it breaks."""
        try:
            with self._engine.connect() as connection:
                self.place = connection.info.get("place")
                yield connection
        except exc.DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error) is not self._is_sqlite:
                raise  # of another log
            raise self._unavailable(error) from error

    def _forget_bodies(self, last: int) -> bool:
        """Delete some of the small updates up to a row; return whether there were any."""
        covered = (bodies.c.run == self.run) & (bodies.c.number <= last)
        first = sa.select(bodies.c.number).where(covered).order_by(bodies.c.number).limit(_FORGOTTEN_AT_ONCE)
        try:
            with self._engine.begin() as connection:
                end = max(connection.execute(first).scalars(), default=None)
                if end is None:
                    return False
                connection.execute(sa.delete(bodies).where(covered & (bodies.c.number <= end)))
                return True
        except exc.DBAPIError as error:
            raise self._unavailable(error) from error

    def _redact(self, after: int, text: str, change: Callable[[Row], Row | None]) -> int:
        is_next = (log.c.number > after) & (log.c.number <= after + _READ_AT_ONCE)
        found = self.read_now(is_next & log.c.arguments.contains(text, autoescape=True))
        changed = [new for row in found if (new := change(row)) is not None and new != row]
        try:
            with self._engine.begin() as connection:
                for row in changed:
                    is_row = (log.c.run == self.run) & (log.c.number == row.number)
                    connection.execute(sa.update(log).where(is_row).values(**_redactable(row)))
        except exc.DBAPIError as error:
            raise self._unavailable(error) from error
        return len(changed)

    def _end_hung(self) -> None:
        with self.connected() as connection:
            connection.exec_driver_sql(END_HUNG)

    def _shrink(self) -> None:
        self._truncate()
        with self._engine.connect() as connection:
            # A script, since one step of the statement frees one page.
            connection.connection.driver_connection.executescript("PRAGMA incremental_vacuum")  # pyright: ignore
        self._truncate()

    def _truncate(self) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def _unavailable(self, error: exc.DBAPIError) -> Exception:
        """Return the error for a failure that may pass; else one that ends the server."""
        if self._is_sqlite:
            kind = getattr(error.orig, "sqlite_errorname", "").partition("_")[2]
            if not isinstance(error.orig, sqlite3.OperationalError) or kind not in _TEMPORARY:
                return OffbeatError(f"the server's database cannot be used: {_line(error)}")
            if kind == "FULL":
                self._make_room(_line(error))
                with suppress(exc.DBAPIError):
                    self._truncate()
        return LogUnavailableError(_line(error))


def _redactable(row: Row) -> dict[str, Any]:
    return {"name": row.name, "arguments": row.arguments, "digest": row.digest, "blob": row.blob}


def _line(error: exc.DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]
