"""The tables of a log in a database, and which run is in them."""

import secrets
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from sqlalchemy import exc

from offbeat.service.log.log import COORDINATOR
from offbeat.service.store.database import FORM, check_form

_MOVING = 0  # in place of a form: the run is being moved here

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

servers = sa.Table(
    "servers",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),  # for people
    sa.Column("epoch", sa.BigInteger, nullable=False),  # that it leads, or of the last row that it has read
    sa.Column("number", sa.BigInteger, nullable=False),  # of the last row that it has read while it stands by
    sa.Column("leads", sa.Boolean, nullable=False),
    sa.Column("beats", sa.BigInteger, nullable=False),  # it grows while the server lives
    sa.Column("since", sa.DateTime(timezone=True), nullable=False),  # it leads or stands by, by the database's clock
    sa.Column("seen", sa.DateTime(timezone=True), nullable=False),  # last
)

# The owner stands in the query's text: PostgreSQL uses a partial index only if it knows the value when it plans.
is_rare = log.c.owner != sa.literal_column(f"'{COORDINATOR}'", sa.Text)
"""Whether a row is none of the coordinator's calls."""

sa.Index("rare", log.c.run, log.c.number, sqlite_where=is_rare, postgresql_where=is_rare)


def prepare(engine: sa.Engine) -> str:
    """Make the tables, if they are not there; return the id of the database's run.

    It is drawn anew if the database does not hold a run.
    """
    make_tables(engine)
    while True:
        if (run := run_in(engine)) is not None:
            return run
        with suppress(exc.IntegrityError):  # another process may be faster
            enter_run(engine, secrets.token_hex(8))


def existing_run(engine: sa.Engine) -> str:
    """Return the id of the database's run; ``OffbeatError`` if it does not hold one."""
    _check(engine)
    if (run := run_in(engine)) is None:
        raise OffbeatError(f"{shown(engine.url)} does not hold a run: start a server with this store.log")
    return run


def given_run(engine: sa.Engine, run: str) -> str:
    """Make a run the database's, which must not hold another one; return its id."""
    make_tables(engine)
    if (found := run_in(engine)) is None:
        enter_run(engine, run)
    elif found != run:
        raise OffbeatError(f"{shown(engine.url)} holds another run: take an empty database")
    return run


def hidden_run(engine: sa.Engine, run: str) -> str:
    """Make an empty log for a run that is moved to the database; return the run in it.

    No server starts there before ``publish_run``. If another run, or this one, is published, nothing is changed.
    """
    _check(engine)
    held = _held(engine)
    if held is not None and held.form != _MOVING:
        return held.run
    make_tables(engine)
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        for table in (log, bodies):  # what an attempt that was killed has left
            connection.execute(sa.delete(table).where(table.c.run.in_([run] if held is None else [run, held.run])))
        connection.execute(sa.delete(runs))
        connection.execute(sa.insert(runs).values(name="", run=run, form=_MOVING))
    return run


def publish_run(engine: sa.Engine) -> None:
    """Let servers start with the run that was moved to the database."""
    with engine.begin() as connection:
        connection.execute(sa.update(runs).where(runs.c.form == _MOVING).values(form=FORM))


def is_moving(engine: sa.Engine) -> bool:
    """Return whether the database's run is not published."""
    held = _held(engine)
    return held is not None and held.form == _MOVING


def make_tables(engine: sa.Engine) -> None:
    """Make the tables that are not there; ``OffbeatError`` if some have another form."""
    _check(engine)
    for is_last in (False, False, True):
        try:
            _metadata.create_all(engine)
        except exc.DBAPIError:
            if is_last:
                raise
            continue  # another process may have made a table at the same moment
        break


def run_in(engine: sa.Engine) -> str | None:
    """Return the id of the database's run, if it has one; refuse another form."""
    found = _held(engine)
    if found is None:
        return None
    if found.form == _MOVING:
        raise OffbeatError(
            f"a run is being moved to {shown(engine.url)}: if that was interrupted, run the same "
            "offbeat server move again"
        )
    check_form(shown(engine.url), found.form)
    return found.run


def _held(engine: sa.Engine) -> sa.Row[Any] | None:
    if not sa.inspect(engine).has_table("runs"):
        return None
    with engine.begin() as connection:
        return connection.execute(sa.select(runs).where(runs.c.name == "")).one_or_none()


def _check(engine: sa.Engine) -> None:
    """Raise ``OffbeatError`` if the database has tables of another form."""
    tables = sa.inspect(engine)
    has_log = tables.has_table("log")  # which another process may make at this moment, after the other table
    held = _held(engine)
    if held is not None and held.form != _MOVING:
        check_form(shown(engine.url), held.form)
    elif has_log and not tables.has_table("runs"):
        check_form(shown(engine.url), 2)


def enter_run(engine: sa.Engine, run: str) -> None:
    """Make a run the database's; ``IntegrityError`` if it has one."""
    with engine.begin() as connection:
        connection.execute(sa.insert(runs).values(name="", run=run, form=FORM))


def shown(url: sa.URL) -> str:
    """Return where a log is, for messages: a file, or a URL without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)
