"""A log in SQLite or PostgreSQL."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from offbeat.service.log.log import LogUnavailableError, ReplacedError, Row, UnknownOutcomeError

T = TypeVar("T")

_metadata = sa.MetaData()

log_table = sa.Table(
    "log",
    _metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary),
    sa.Column("blob", sa.Text),
    sa.Column("digest", sa.Text),
)


class SqlLog:
    """A log in a table, used from a thread of its own.

    The row that an append names as the last one never changes once it is there, and two rows cannot have one number. So
    it does not matter what others commit between the look at that row and the insertion: either one of them has taken
    the next number, and the insertion fails, or nobody has.

    Args:
        engine: The database; ``begin`` on its connections takes what writers need, and a commit is durable.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "log")

    async def open(self) -> None:
        """Make the table, if it is not there."""
        await self._run(lambda: _metadata.create_all(self._engine))

    async def append(self, rows: Sequence[Row], *, after: tuple[int, int]) -> None:
        """Append rows; see ``Log``."""
        await self._run(lambda: self._append(rows, after))

    async def read(self, after: int, limit: int) -> list[Row]:
        """Return rows; see ``Log``."""
        return await self._run(lambda: self._read(after, limit))

    async def close(self) -> None:
        """Close the database, and end the thread."""
        await self._run(self._engine.dispose)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _append(self, rows: Sequence[Row], after: tuple[int, int]) -> None:
        number, epoch = after
        values = [{name: getattr(row, name) for name in Row.__slots__} for row in rows]
        try:
            connection = self._engine.connect()
        except exc.DBAPIError as error:
            raise LogUnavailableError(str(error.orig)) from error
        with connection:
            try:
                is_there = sa.select(log_table.c.epoch).where(log_table.c.number == number)
                if number and connection.execute(is_there).scalar() != epoch:
                    raise ReplacedError(f"the log has no row {number} of epoch {epoch}")
                connection.execute(sa.insert(log_table), values)
            except exc.IntegrityError as error:
                raise ReplacedError(f"the log has another row {number + 1}") from error
            except exc.DBAPIError as error:
                raise LogUnavailableError(str(error.orig)) from error
            try:
                connection.commit()
            except exc.DBAPIError as error:
                raise UnknownOutcomeError(str(error.orig)) from error

    def _read(self, after: int, limit: int) -> list[Row]:
        query = sa.select(log_table).where(log_table.c.number > after).order_by(log_table.c.number).limit(limit)
        try:
            with self._engine.connect() as connection:
                return [Row(**row._mapping) for row in connection.execute(query)]  # pyright: ignore[reportPrivateUsage]
        except exc.DBAPIError as error:
            raise LogUnavailableError(str(error.orig)) from error
