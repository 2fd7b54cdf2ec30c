"""Signs of life of the servers that share a log.

Nothing rests on them but who tries to lead, and what operators see.
"""

from datetime import timedelta
from typing import NamedTuple

import sqlalchemy as sa

from offbeat.service.log.log import ReplacedError
from offbeat.service.log.tables import servers

_FORGOTTEN_AFTER = timedelta(days=1)


class SeenLeader(NamedTuple):
    """The leader that was seen last."""

    epoch: int
    beats: int  # it grows while the leader lives
    name: str


class SignOfLife(NamedTuple):
    """A sign of life; see the table ``servers``."""

    name: str
    epoch: int
    number: int
    leads: bool


class SeenServer(NamedTuple):
    """A server that has shown itself; times are the database's."""

    sign: SignOfLife
    beats: int
    since_seconds: float  # how long it has led or stood by
    silent_seconds: float  # since its last sign


def show(connection: sa.Connection, run: str, server: str, sign: SignOfLife) -> None:
    """Write a server's sign of life.

    Raises:
        ReplacedError: It leads no longer: another server has begun a later epoch.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")  # it may be lost
    if sign.leads:
        leaders = (servers.c.run == run) & servers.c.leads
        newest = connection.execute(sa.select(sa.func.max(servers.c.epoch)).where(leaders)).scalar()
        if newest is not None and newest > sign.epoch:
            raise ReplacedError(f"it has begun epoch {newest}")
    now = sa.func.now()
    is_same = servers.c.leads == sa.literal(sign.leads)
    values = {**sign._asdict(), "seen": now}
    own = sa.update(servers).where((servers.c.run == run) & (servers.c.server == server))
    changes = {"beats": servers.c.beats + 1, "since": sa.case((is_same, servers.c.since), else_=now)}
    if connection.execute(own.values(values | changes)).rowcount:
        return
    _forget_old(connection, run)
    connection.execute(sa.insert(servers).values(run=run, server=server, beats=0, since=now, **values))


def leader_of(connection: sa.Connection, run: str) -> SeenLeader | None:
    """Return the leader of the last epoch that has shown itself."""
    query = sa.select(servers.c.epoch, servers.c.beats, servers.c.name).where((servers.c.run == run) & servers.c.leads)
    found = connection.execute(query.order_by(servers.c.epoch.desc()).limit(1)).one_or_none()
    return None if found is None else SeenLeader(*found)


def servers_of(connection: sa.Connection, run: str) -> list[SeenServer]:
    """Return all servers that have shown themselves, the last leader first."""
    query = sa.select(servers, sa.func.now().label("now")).where(servers.c.run == run)
    return [
        SeenServer(
            SignOfLife(row.name, row.epoch, row.number, row.leads),
            row.beats,
            (row.now - row.since).total_seconds(),
            (row.now - row.seen).total_seconds(),
        )
        for row in connection.execute(query.order_by(servers.c.leads.desc(), servers.c.epoch.desc(), servers.c.name))
    ]


def forget(connection: sa.Connection, run: str, server: str) -> None:
    """Delete a server's signs, once it ends."""
    connection.execute(sa.delete(servers).where((servers.c.run == run) & (servers.c.server == server)))


def _forget_old(connection: sa.Connection, run: str) -> None:
    query = sa.select(servers.c.server, servers.c.seen, sa.func.now().label("now")).where(servers.c.run == run)
    old = [row.server for row in connection.execute(query) if row.now - row.seen > _FORGOTTEN_AFTER]
    connection.execute(sa.delete(servers).where((servers.c.run == run) & servers.c.server.in_(old)))
