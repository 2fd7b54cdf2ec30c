"""Copies of a log's rows into another log."""

from collections.abc import Generator
from contextlib import contextmanager

import sqlalchemy as sa

from offbeat.service.log.log import BrokenLogError
from offbeat.service.log.tables import bodies, log

_AT_ONCE = 1000  # rows
_IDLE = "60s"  # while the other log writes


def copy_rows(source: sa.Connection, target: sa.Connection, run: str, last: int) -> int:
    """Copy the rows up to ``last`` that the target lacks; return its last number.

    Small updates are left out. Each part is committed.
    """
    end = last_number(target, run)
    while end < last:
        query = sa.select(log).where((log.c.run == run) & (log.c.number > end) & (log.c.number <= last))
        rows = source.execute(query.order_by(log.c.number).limit(_AT_ONCE)).mappings().all()
        if [row["number"] for row in rows] != list(range(end + 1, end + 1 + len(rows))) or not rows:
            raise BrokenLogError(f"the log is broken: it lacks row {end + 1}; restore a backup")
        target.execute(sa.insert(log), list(map(dict, rows)))
        target.commit()
        end = rows[-1]["number"]
    return end


def copy_bodies(source: sa.Connection, target: sa.Connection, run: str, after: int, last: int) -> None:
    """Have the target hold the small updates behind row ``after``, and no others."""
    target.execute(sa.delete(bodies).where((bodies.c.run == run) & (bodies.c.number <= after)))
    end = target.execute(sa.select(sa.func.max(bodies.c.number)).where(bodies.c.run == run)).scalar() or after
    while True:
        query = sa.select(bodies).where((bodies.c.run == run) & (bodies.c.number > end) & (bodies.c.number <= last))
        found = source.execute(query.order_by(bodies.c.number).limit(_AT_ONCE)).mappings().all()
        if not found:
            break
        target.execute(sa.insert(bodies), list(map(dict, found)))
        target.commit()
        end = found[-1]["number"]
    target.commit()


def last_number(connection: sa.Connection, run: str) -> int:
    """Return the number of the last row; 0 without."""
    return connection.execute(sa.select(sa.func.max(log.c.number)).where(log.c.run == run)).scalar() or 0


@contextmanager
def snapshot(connection: sa.Connection) -> Generator[None]:
    """Read one state of the database within the context, whatever others change."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}'")
    try:
        yield
    finally:
        connection.rollback()
