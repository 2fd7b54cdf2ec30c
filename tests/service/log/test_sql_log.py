import asyncio
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from offbeat.service.log import sql_log
from offbeat.service.log.log import ReplacedError, Row
from offbeat.service.log.signs_of_life import SeenLeader, SignOfLife
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.tables import is_rare
from offbeat.service.log.tables import log as table
from tests.postgres import postgres as postgres

FIRST = Row(1, 1, "term", "a")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'log.sqlite'}"
        return
    url = request.getfixturevalue("postgres")
    yield url
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS log, bodies, runs, servers")
    engine.dispose()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlLog]:
    log = SqlLog(sa.create_engine(url))
    try:
        yield log
    finally:
        log.close()


def test_rows_come_back_as_they_were_appended(url: str) -> None:
    rows = [
        FIRST,
        Row(2, 1, "coordinator", "receive", '{"client": 3}', body=b"\x00\xff", digest="ab"),
        Row(3, 1, "coordinator", "receive", blob="x", digest="cd"),
        Row(4, 1, "audit", "report", entry="{}", head="ef"),
    ]

    async def run() -> None:
        async with opened(url) as log:
            await log.append(rows[:1], after=(0, 0))
            await log.append(rows[1:], after=(1, 1))
            assert await log.read(0, 10) == rows
            assert await log.read(1, 1) == rows[1:2]
        async with opened(url) as log:
            assert await log.read(2, 10) == rows[2:]

    asyncio.run(run())


def test_the_newest_rows_for_which_a_condition_holds(url: str) -> None:
    receives = [Row(n, 1, "coordinator", "receive", f'{{"client":{n % 3},"visit":0}}', body=b"x") for n in range(2, 9)]

    async def run() -> None:
        async with opened(url) as log:
            await log.append([FIRST, *receives], after=(0, 0))
            found = await log.newest(table.c.arguments.like('%"client":2,%') & (table.c.number > 2), 10)
            assert [row.number for row in found] == [8, 5]
            assert found[0] == replace(receives[6], body=None)
            assert [row.number for row in await log.newest(is_rare, 10)] == [1]
            assert [row.number for row in await log.newest(table.c.number > 0, 2)] == [8, 7]

    asyncio.run(run())


@pytest.mark.parametrize("after", [(0, 0), (1, 2), (2, 1)], ids=["not the last", "another epoch", "not there"])
def test_an_append_behind_another_row_than_the_last_changes_nothing(url: str, after: tuple[int, int]) -> None:
    async def run() -> None:
        async with opened(url) as log:
            await log.append([FIRST], after=(0, 0))
            rows = [Row(after[0] + i, 1, "coordinator", "drop") for i in (1, 2)]
            with pytest.raises(ReplacedError):
                await log.append(rows, after=after)
            assert await log.read(0, 10) == [FIRST]

    asyncio.run(run())


def test_of_many_that_append_at_once_one_succeeds(url: str) -> None:
    async def run() -> None:
        async with opened(url) as log:
            await log.append([FIRST], after=(0, 0))

        async def race(number: int) -> int | None:
            async with opened(url) as log:
                try:
                    await log.append([Row(2, 2, "term", str(number)), Row(3, 2, "coordinator", "drop")], after=(1, 1))
                except ReplacedError:
                    return None
                return number

        for _ in range(5):
            winners = [winner for winner in await asyncio.gather(*map(race, range(6))) if winner is not None]
            async with opened(url) as log:
                rows = await log.read(1, 10)
                assert [row.name for row in rows] == [*map(str, winners), "drop"]
                engine = sa.create_engine(url)
                with engine.begin() as connection:
                    connection.exec_driver_sql("DELETE FROM log WHERE number > 1")
                engine.dispose()

    asyncio.run(run())


def test_small_updates_are_forgotten_and_their_rows_stay(url: str) -> None:
    rows = [FIRST, *(Row(number, 1, "coordinator", "receive", body=b"x") for number in (2, 3))]

    async def run() -> None:
        async with opened(url) as log:
            await log.append(rows, after=(0, 0))
            await log.forget_bodies(2)
            await log.tidy()
            assert await log.read(0, 10) == [FIRST, replace(rows[1], body=None), rows[2]]

    asyncio.run(run())


def test_an_append_waits_for_a_part_of_what_is_forgotten(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_log, "_FORGOTTEN_AT_ONCE", 2)
    rows = [FIRST, *(Row(number, 1, "coordinator", "receive", body=b"x") for number in range(2, 9))]

    async def run() -> None:
        async with opened(url) as log:
            await log.append(rows, after=(0, 0))
            forgetting = asyncio.create_task(log.forget_bodies(7))
            await asyncio.sleep(0)
            await log.append([Row(9, 1, "coordinator", "drop")], after=(8, 1))
            left = sum(row.body is not None for row in log.read_now(table.c.number > 0))
            await forgetting
            assert left > 1
            assert [row.number for row in await log.read(0, 10) if row.body is not None] == [8]

    asyncio.run(run())


def test_all_that_open_a_database_have_the_same_run(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(lambda _: SqlLog(sa.create_engine(url)), range(4)))
    assert len({log.run for log in logs}) == 1
    for log in logs:
        log.close()


def test_rare_rows_are_found_by_their_owner(url: str) -> None:
    rows = [FIRST, Row(2, 1, "coordinator", "drop"), Row(3, 1, "run", "pause")]

    async def run() -> None:
        async with opened(url) as log:
            await log.append(rows, after=(0, 0))
            assert log.read_now(is_rare & (table.c.owner == "run")) == rows[2:]
            assert log.read_now(~is_rare, 1) == rows[1:2]
            assert log.newest_now("run") == rows[2]
            assert log.newest_now("checkpoint") is None
            await log.append([Row(4, 1, "run", "resume"), Row(5, 1, "coordinator", "drop")], after=(3, 1))
            assert log.newest_now("run") == Row(4, 1, "run", "resume")

    asyncio.run(run())


def test_the_leader_of_the_last_epoch_shows_itself(url: str) -> None:
    async def run() -> None:
        async with opened(url) as log:
            assert await log.leader() is None
            await log.beat(1, "a")
            assert await log.leader() == SeenLeader(1, 0, "a")
            await log.beat(1, "a")
            await log.beat(2, "b")
            assert await log.leader() == SeenLeader(2, 2, "b")
            with pytest.raises(ReplacedError, match="it has begun epoch 2"):
                await log.beat(1, "a")
            assert await log.leader() == SeenLeader(2, 2, "b")

    asyncio.run(run())


def test_servers_show_how_far_they_are_and_are_forgotten_once_they_end(url: str) -> None:
    async def run() -> None:
        async with opened(url) as one, opened(url) as two:
            two.run = one.run
            await one.beat(1, "a")
            await two.stand_by(7, 1, "b")
            await two.stand_by(9, 1, "b")
            first, second = one.servers_now()
            assert first.sign == SignOfLife("a", 1, 0, leads=True)
            assert (second.sign, second.beats) == (SignOfLife("b", 1, 9, leads=False), 1)
            assert 0 <= second.silent_seconds <= second.since_seconds < 60
            await two.beat(2, "b")
            assert [server.sign.name for server in one.servers_now()] == ["b", "a"]
        async with opened(url) as log:
            assert log.servers_now() == []

    asyncio.run(run())


def test_a_session_that_hangs_in_an_append_does_not_keep_the_next_row(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_log, "END_HUNG", sql_log.END_HUNG.replace("2 seconds", "1 second"))

    async def run() -> None:
        async with opened(postgres) as two:
            await two.append([FIRST], after=(0, 0))
            engine = sa.create_engine(postgres)
            with pytest.raises(exc.OperationalError), engine.begin() as hung:  # noqa: PT012
                row = {"run": two.run, "number": 2, "epoch": 1, "owner": "a", "name": "b", "arguments": "{}"}
                hung.execute(sa.insert(table), row)
                await two.end_hung()  # it has only begun
                hung.execute(sa.select(1))
                append = asyncio.create_task(two.append([replace(FIRST, number=2)], after=(1, 1)))
                await asyncio.sleep(1.1)
                async with opened(postgres) as three:
                    await three.end_hung()
                await asyncio.wait_for(append, 10)
                hung.execute(sa.select(1))
            engine.dispose()

    asyncio.run(run())


def test_the_condition_of_the_partial_index_holds_the_owner_itself() -> None:
    assert str(is_rare.compile()) == "log.owner != 'coordinator'"  # a plan for any owner would not use the index
