import asyncio
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from offbeat_core.errors import OffbeatError

from offbeat.service.log.log import Row
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.log.tables import prepare
from tests.e2e.server_process import until
from tests.postgres import USER, program, server_folder
from tests.postgres import postgres as postgres


def opened(url: str) -> list[Row]:
    with closing(open_log(url)) as log:
        return asyncio.run(log.read(0, 1))


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("nonsense", "store.log is not a URL: 'nonsense'"),
        ("mysql://a@b/c", "store.log cannot be 'mysql': allowed are sqlite and postgresql"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, line: str) -> None:
    with pytest.raises(OffbeatError) as error:
        opened(url)
    assert str(error.value) == line


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(OffbeatError, match=r"^cannot use the log postgresql://me:\*\*\*@localhost:1/x: ") as error:
        opened("postgresql://me:secret@localhost:1/x")
    assert "secret" not in str(error.value)


def test_sqlite_commits_wait_for_the_disk_and_the_file_can_be_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        with closing(open_log(sqlite_url(tmp_path / "x.sqlite"))) as log, log._engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_a_full_disk_sends_the_operator_to_free_space(tmp_path: Path) -> None:
    def prepare_small(engine: sa.Engine) -> str:
        sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
        return prepare(engine)

    with pytest.raises(OffbeatError, match=r"database or disk is full: free space there, outside the folder$"):
        open_log(sqlite_url(tmp_path / "x.sqlite"), enter=prepare_small)


def test_a_database_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    open_log(sqlite_url(path)).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET form = form + 1")
    with pytest.raises(OffbeatError, match="holds a run of another version"):
        open_log(sqlite_url(path))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE runs")
    with pytest.raises(OffbeatError, match=r"holds a run of another version of Offbeat \(form 2"):
        open_log(sqlite_url(path))


def test_a_broken_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(OffbeatError, match=r"cannot use .*x\.sqlite"):
        open_log(sqlite_url(tmp_path / "x.sqlite"))


def test_postgres_is_refused_where_a_commit_may_be_lost(postgres: str) -> None:
    plain = postgres.replace("+psycopg", "")
    assert opened(plain) == []
    admin = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql("ALTER SYSTEM SET synchronous_commit = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    try:
        with pytest.raises(OffbeatError, match=r"may lose rows: synchronous_commit is off; set it to on$"):
            opened(plain)
    finally:
        with admin.connect() as connection:
            connection.exec_driver_sql("ALTER SYSTEM RESET synchronous_commit")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
        admin.dispose()


POOLER = """
[databases]
* = host={host} user=offbeat
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = {ignored}
logfile = {folder}/pgbouncer.log
"""


@pytest.mark.parametrize(("mode", "ignored"), [("transaction", ""), ("session", "options")])
def test_a_pooler_in_front_of_postgres_is_refused(postgres: str, mode: str, ignored: str) -> None:
    bouncer, host = program("pgbouncer"), postgres.rpartition("=")[2]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with server_folder() as folder:
        (folder / "config").write_text(POOLER.format(host=host, port=port, mode=mode, ignored=ignored, folder=folder))
        (folder / "config").chmod(0o644)  # whatever the umask is
        process = subprocess.Popen([bouncer, "-q", str(folder / "config")], user=USER, stderr=subprocess.DEVNULL)
        try:
            log = folder / "pgbouncer.log"
            until(lambda: log.exists() and "process up" in log.read_text())
            with pytest.raises(OffbeatError, match=r"is behind a pooler such as pgbouncer.*: give PostgreSQL's own"):
                opened(f"postgresql://offbeat@127.0.0.1:{port}/postgres")
        finally:
            process.terminate()
            process.wait()


def test_a_session_of_postgres_may_not_wait_for_long(postgres: str) -> None:
    with closing(open_log(postgres.replace("+psycopg", ""))) as log, log.connected() as connection:
        for name in ("idle_in_transaction_session_timeout", "lock_timeout"):
            assert connection.exec_driver_sql(f"SHOW {name}").scalar() == "5s"
        parameters = connection.connection.driver_connection.info.get_parameters()  # pyright: ignore
        assert (parameters["tcp_user_timeout"], parameters["keepalives_idle"]) == ("5000", "5")
