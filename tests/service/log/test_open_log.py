import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from offbeat_core.errors import OffbeatError

from offbeat.service.log.log import Row
from offbeat.service.log.open_log import open_log
from tests.postgres import postgres as postgres


def opened(url: str) -> list[Row]:
    async def run() -> list[Row]:
        log = await open_log(url)
        try:
            return await log.read(0, 1)
        finally:
            await log.close()

    return asyncio.run(run())


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


def test_sqlite_commits_wait_for_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    assert opened(f"sqlite:///{path}") == []
    assert path.with_name("log.sqlite").is_file()


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
