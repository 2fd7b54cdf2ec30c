"""A log in SQLite or PostgreSQL."""

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from sqlalchemy import exc

from offbeat.service.log.log import COORDINATOR, LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.store.database import FORM, check_form

T = TypeVar("T")

_metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    _metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("form", sa.Integer, nullable=False),
)

log = sa.Table(
    "log",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("digest", sa.Text),
    sa.Column("blob", sa.Text),
    sa.Column("entry", sa.Text),
    sa.Column("head", sa.Text),
    sqlite_with_rowid=False,
)

bodies = sa.Table(
    "bodies",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

leaders = sa.Table(
    "leaders",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("beats", sa.BigInteger, nullable=False),  # it grows while the leader lives
    sa.Column("name", sa.Text, nullable=False),  # for people
)

is_rare = log.c.owner != COORDINATOR
"""Whether a row is none of the coordinator's calls."""

sa.Index("rare", log.c.run, log.c.number, sqlite_where=is_rare, postgresql_where=is_rare)

_FORGOTTEN_AT_ONCE = 100  # small updates

# SQLite's errors that may pass while the server runs. After any other the file's content is unknown.
_TEMPORARY = ("FULL", "READONLY", "CANTOPEN", "BUSY")


class Leader(NamedTuple):
    """The leader that was seen last."""

    epoch: int
    beats: int  # it grows while the leader lives
    name: str


class SqlLog:
    """A log in tables, used from a thread of its own.

    The row that an append names as the last one never changes once it is there, and two rows cannot have one number. So
    it does not matter what others commit between the look at that row and the insertion: either one of them has taken
    the next number, and the insertion fails, or nobody has.

    Args:
        engine: The database; a commit is durable.
        make_room: Called with the problem when SQLite's disk is full.

    Attributes:
        run: The id of the run whose log it is; one that is drawn anew if the database does not hold a run.
    """

    def __init__(self, engine: sa.Engine, make_room: Callable[[str], object] = lambda problem: None) -> None:
        self._engine = engine
        self._make_room = make_room
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._thread = ThreadPoolExecutor(1, "log")
        self.run = self._prepare()

    async def append(self, rows: Sequence[Row], *, after: tuple[int, int]) -> None:
        """Append rows; see ``Log``."""
        await self._in_thread(lambda: self._append(rows, after))

    async def read(self, after: int, limit: int) -> list[Row]:
        """Return rows; see ``Log``."""
        return await self._in_thread(lambda: self.read_now(log.c.number > after, limit))

    async def last_epoch(self) -> int:
        """Return the last row's epoch; see ``Log``."""
        return await self._in_thread(self._last_epoch)

    async def forget_bodies(self, last: int) -> None:
        """Delete small updates; see ``Log``."""
        # A part at a time, so that appends need not wait for all of them.
        while await self._in_thread(lambda: self._forget_bodies(last)):
            pass

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
        await self._in_thread(lambda: self._beat(epoch, name))

    async def leader(self) -> Leader | None:
        """Return the last leader that has shown itself; None if there was none.

        Raises:
            LogUnavailableError: The log cannot be reached.
        """
        return await self._in_thread(self.leader_now)

    def leader_now(self) -> Leader | None:
        """Return the last leader that has shown itself, in this thread."""
        query = sa.select(leaders.c.epoch, leaders.c.beats, leaders.c.name).where(leaders.c.run == self.run)
        try:
            with self._engine.connect() as connection:
                found = connection.execute(query).one_or_none()
        except exc.DBAPIError as error:
            raise self._unavailable(error) from error
        return None if found is None else Leader(*found)

    def newest_now(self, owner: str) -> Row | None:
        """Return the last row of an owner that is not the coordinator; None without."""
        own = sa.select(sa.func.max(log.c.number)).where((log.c.run == self.run) & is_rare & (log.c.owner == owner))
        return next(iter(self.read_now(log.c.number == own.scalar_subquery())), None)

    def read_now(self, which: sa.ColumnElement[bool], limit: int | None = None) -> list[Row]:
        """Return the rows for which a condition on ``log``'s columns holds, in order."""
        joined = log.outerjoin(bodies, (bodies.c.run == log.c.run) & (bodies.c.number == log.c.number))
        columns = [*(column for column in log.c if column.name != "run"), bodies.c.body]
        query = sa.select(*columns).select_from(joined).where((log.c.run == self.run) & which)
        try:
            with self._engine.connect() as connection:
                found = connection.execute(query.order_by(log.c.number).limit(limit)).all()
        except exc.DBAPIError as error:
            raise self._unavailable(error) from error
        return [Row(*row) for row in found]

    def close(self) -> None:
        """Close the database, and end the thread, once what it does is done."""
        self._thread.shutdown()
        self._engine.dispose()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _prepare(self) -> str:
        """Make the tables, if they are not there; return the id of the run."""
        tables = sa.inspect(self._engine)
        has_log = tables.has_table("log")  # which another process may make at this moment, after the other table
        if tables.has_table("runs"):
            self._run()
        elif has_log:
            check_form(str(self._engine.url.database), 2)
        for is_last in (False, False, True):
            try:
                _metadata.create_all(self._engine)
            except exc.DBAPIError:
                if is_last:
                    raise
                continue  # another process may have made a table at the same moment
            break
        while True:
            if (run := self._run()) is not None:
                return run
            with suppress(exc.IntegrityError), self._engine.begin() as connection:  # another process may be faster
                values = {"name": "", "run": secrets.token_hex(8), "form": FORM}
                connection.execute(sa.insert(runs).values(values))

    def _run(self) -> str | None:
        """Return the id of the database's run, if it has one; refuse another form."""
        with self._engine.begin() as connection:
            found = connection.execute(sa.select(runs).where(runs.c.name == "")).one_or_none()
        if found is None:
            return None
        check_form(str(self._engine.url.database), found.form)
        return found.run

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
        is_last = (log.c.run == self.run) & (log.c.number == number)
        if number and connection.execute(sa.select(log.c.epoch).where(is_last)).scalar() != epoch:
            raise ReplacedError(f"the log has no row {number} of epoch {epoch}")
        names = [column.name for column in log.c if column.name != "run"]
        values = [{"run": self.run, **{name: getattr(row, name) for name in names}} for row in rows]
        connection.execute(sa.insert(log), values)
        small = [{"run": self.run, "number": row.number, "body": row.body} for row in rows if row.body is not None]
        if small:
            connection.execute(sa.insert(bodies), small)

    def _last_epoch(self) -> int:
        query = sa.select(log.c.epoch).where(log.c.run == self.run).order_by(log.c.number.desc()).limit(1)
        try:
            with self._engine.connect() as connection:
                return connection.execute(query).scalar() or 0
        except exc.DBAPIError as error:
            raise self._unavailable(error) from error

    def _beat(self, epoch: int, name: str) -> None:
        own = leaders.c.run == self.run
        try:
            with self._engine.begin() as connection:
                values = {"epoch": epoch, "beats": leaders.c.beats + 1, "name": name}
                older = sa.update(leaders).where(own & (leaders.c.epoch <= epoch)).values(values)
                if connection.execute(older).rowcount:
                    return
                newer = connection.execute(sa.select(leaders.c.epoch).where(own)).scalar()
                if newer is not None:
                    raise ReplacedError(f"it has begun epoch {newer}")
                first = {"run": self.run, "epoch": epoch, "beats": 0, "name": name}
                connection.execute(sa.insert(leaders).values(first))
        except exc.DBAPIError as error:
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


def _line(error: exc.DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]
