import asyncio
import errno
import os
import sqlite3
from contextlib import asynccontextmanager, closing

import pytest
import sqlalchemy as sa

from offbeat.service.refusal import Refusal
from offbeat.service.store import journal as module
from offbeat.service.store.database import LogRecord, log, meta, open_database
from offbeat.service.store.disk import Disk
from offbeat.service.store.journal import Journal, SyncError
from offbeat.service.store.reserve_file import Reserve

FULL, BROKEN = (OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EIO))


class Segment:
    """A segment whose sync notes what the log holds at that moment, and may fail."""

    path = "segment-1"

    def __init__(self, path, errors=()):
        self._path, self._errors = path, list(errors)
        self.seen = []

    def sync(self):
        self.seen.append(logged(self._path))
        if self._errors:
            raise self._errors.pop(0)


def logged(path):
    with closing(sqlite3.connect(path)) as database:
        return [number for (number,) in database.execute("SELECT number FROM log ORDER BY number")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.sqlite"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)


@asynccontextmanager
async def journal(path, failures=None):
    failures = [] if failures is None else failures
    database = open_database(path)
    disk = Disk(Reserve(path.with_name("reserve")), failures.append)
    opened = Journal(database, 0, disk, failures.append)
    try:
        yield opened, disk
    finally:
        await opened.close()
        database.dispose()


def record(number):
    return LogRecord(number, "drop", {"client": 0})


def test_an_update_is_synced_then_logged_then_acted_upon(path):
    async def main():
        segment, seen = Segment(path), []
        async with journal(path) as (opened, _):
            opened.append(record(1), segment)
            opened.append(record(2), segment)
            opened.execute(sa.insert(meta).values(key="a", value="b"))
            opened.run_once_durable(lambda: seen.append(logged(path)))
            await opened.wait_until_durable()
            assert opened.number == 2
            assert logged(path) == [1, 2]
            await opened.wait_until_durable()
        assert segment.seen[0] == []
        assert seen == [[1, 2]]

    asyncio.run(main())


def test_records_have_consecutive_numbers(path):
    async def main():
        async with journal(path) as (opened, _):
            with pytest.raises(AssertionError):
                opened.append(record(2))

    asyncio.run(main())


def test_what_is_entered_is_written_when_the_journal_closes(path):
    async def main():
        async with journal(path) as (opened, _):
            opened.append(record(1))

    asyncio.run(main())
    assert logged(path) == [1]


def test_on_a_full_disk_requests_are_refused_and_entries_are_written_later(path):
    async def main():
        failures, done, errors = [], [], [FULL]

        def act():
            if errors:
                raise errors.pop()
            done.append(logged(path))

        async with journal(path, failures) as (opened, disk):
            opened.append(record(1))
            opened.run_once_durable(lambda: done.append("before"))
            opened.run_once_durable(act)
            with pytest.raises(Refusal) as caught:
                await opened.wait_until_durable()
            assert caught.value.kind == "no-space"
            with pytest.raises(Refusal):
                opened.check()
            assert disk.problem
            await opened.wait_until_durable(on_reserve=True)
            assert not opened.is_blocked
            assert opened.problem == disk.problem  # nothing new before there is room for the reserve
            assert disk.keep_reserve(100)
            opened.check()
        assert failures == []
        assert done == ["before", [1]]  # each once

    asyncio.run(main())


@pytest.mark.parametrize("error", [FULL, BROKEN], ids=["full", "broken"])
def test_a_failed_sync_ends_the_server_and_nothing_is_logged(error, path):
    async def main():
        failures = []
        async with journal(path, failures) as (opened, _):
            opened.append(record(1), Segment(path, [error]))
            with pytest.raises(Refusal):
                await opened.wait_until_durable()
            opened.append(record(2))
            with pytest.raises(Refusal):
                await opened.wait_until_durable(on_reserve=True)
        assert [type(failure) for failure in failures] == [SyncError]
        assert logged(path) == []

    asyncio.run(main())


def test_a_broken_disk_ends_the_server(path):
    async def main():
        failures = []

        def fail():
            raise BROKEN

        async with journal(path, failures) as (opened, _):
            opened.run_once_durable(fail)
            with pytest.raises(Refusal):
                await opened.wait_until_durable()
        assert failures == [BROKEN]

    asyncio.run(main())


def test_a_statement_that_fails_ends_the_server_in_one_line(path):
    async def main():
        failures = []
        async with journal(path, failures) as (opened, _):
            opened.execute(sa.insert(log).values(number=1, name="drop", arguments=None))
            with pytest.raises(Refusal):
                await opened.wait_until_durable()
        assert "database cannot be written" in str(failures[0])
        assert "\n" not in str(failures[0])

    asyncio.run(main())


def test_the_write_ahead_log_can_be_truncated(path):
    async def main():
        async with journal(path) as (opened, _):
            opened.append(record(1))
            await opened.wait_until_durable()
            ahead = path.with_name("x.sqlite-wal")
            assert ahead.stat().st_size > 0
            opened.truncate()
            await opened.wait_until_durable()
            assert ahead.stat().st_size == 0

    asyncio.run(main())
