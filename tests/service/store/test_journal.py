import errno
import os
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa

from offbeat.service.refusal import Refusal
from offbeat.service.store import journal as module
from offbeat.service.store.database import LogRecord, log, meta, open_database
from offbeat.service.store.disk import Disk
from offbeat.service.store.journal import Journal, SyncError

FULL, BROKEN = (OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EIO))
pytestmark = pytest.mark.anyio


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


def record(number):
    return LogRecord(number, "drop", {"client": 0})


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.sqlite"


@pytest.fixture
def failures():
    return []


@pytest.fixture
def disk(tmp_path, failures):
    return Disk(tmp_path / "reserve", failures.append)


@pytest.fixture
async def journal(path, disk, failures, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    database = open_database(path)
    opened = Journal(database, 0, disk, failures.append)
    yield opened
    await opened.close()
    database.dispose()


async def test_an_update_is_synced_then_logged_then_acted_upon(journal, path):
    segment, seen = Segment(path), []
    journal.append(record(1), segment)
    journal.append(record(2), segment)
    journal.execute(sa.insert(meta).values(key="a", value="b"))
    journal.run_once_durable(lambda: seen.append(logged(path)))
    await journal.wait_until_durable()
    assert journal.number == 2
    assert logged(path) == [1, 2]
    await journal.wait_until_durable()
    assert segment.seen[0] == []
    assert seen == [[1, 2]]


async def test_records_have_consecutive_numbers(journal):
    with pytest.raises(AssertionError):
        journal.append(record(2))


async def test_what_is_entered_is_written_when_the_journal_closes(journal, path):
    journal.append(record(1))
    await journal.close()
    assert logged(path) == [1]


async def test_on_a_full_disk_requests_are_refused_and_entries_are_written_later(journal, disk, failures, path):
    done, errors = [], [FULL]

    def act():
        if errors:
            raise errors.pop()
        done.append(logged(path))

    journal.append(record(1))
    journal.run_once_durable(lambda: done.append("before"))
    journal.run_once_durable(act)
    with pytest.raises(Refusal) as caught:
        await journal.wait_until_durable()
    assert caught.value.kind == "no-space"
    with pytest.raises(Refusal):
        journal.check()
    assert disk.problem
    await journal.wait_until_durable(on_reserve=True)
    assert not journal.is_blocked
    assert journal.problem == disk.problem  # nothing new before there is room for the reserve
    assert disk.keep_reserve(100)
    journal.check()
    assert failures == []
    assert done == ["before", [1]]  # each once


@pytest.mark.parametrize("error", [FULL, BROKEN], ids=["full", "broken"])
async def test_a_failed_sync_ends_the_server_and_nothing_is_logged(error, journal, failures, path):
    journal.append(record(1), Segment(path, [error]))
    with pytest.raises(Refusal):
        await journal.wait_until_durable()
    journal.append(record(2))
    with pytest.raises(Refusal):
        await journal.wait_until_durable(on_reserve=True)
    await journal.close()
    assert [type(failure) for failure in failures] == [SyncError]
    assert logged(path) == []


async def test_a_broken_disk_ends_the_server(journal, failures):
    def fail():
        raise BROKEN

    journal.run_once_durable(fail)
    with pytest.raises(Refusal):
        await journal.wait_until_durable()
    await journal.close()
    assert failures == [BROKEN]


async def test_a_statement_that_fails_ends_the_server_in_one_line(journal, failures):
    journal.execute(sa.insert(log).values(number=1, name="drop", arguments=None))
    with pytest.raises(Refusal):
        await journal.wait_until_durable()
    await journal.close()
    assert "database cannot be written" in str(failures[0])
    assert "\n" not in str(failures[0])


async def test_the_write_ahead_log_can_be_truncated(journal, path):
    journal.append(record(1))
    await journal.wait_until_durable()
    ahead = path.with_name("x.sqlite-wal")
    assert ahead.stat().st_size > 0
    journal.truncate()
    await journal.wait_until_durable()
    assert ahead.stat().st_size == 0
