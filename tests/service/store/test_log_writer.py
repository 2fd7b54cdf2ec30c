import errno
import os
import sqlite3
from contextlib import closing

import pytest

from offbeat.service.refusal import Refusal
from offbeat.service.store import log_writer as module
from offbeat.service.store.database import Change, LogRecord, open_database
from offbeat.service.store.disk import Disk
from offbeat.service.store.log_writer import LogWriter, SyncError

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
async def log_writer(path, disk, failures, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    database = open_database(path)
    opened = LogWriter(database, 0, disk, failures.append)
    yield opened
    await opened.close()
    database.dispose()


async def test_an_update_is_synced_then_logged_then_acted_upon(log_writer, path):
    segment, seen = Segment(path), []
    log_writer.append(record(1), segment)
    log_writer.append(record(2), segment)
    log_writer.enter(Change("run", "pause", {}))
    log_writer.run_once_durable(lambda: seen.append(logged(path)))
    await log_writer.wait_until_durable()
    assert log_writer.number == 3
    assert logged(path) == [1, 2, 3]
    await log_writer.wait_until_durable()
    assert segment.seen[0] == []
    assert seen == [[1, 2, 3]]


async def test_records_have_consecutive_numbers(log_writer):
    with pytest.raises(AssertionError):
        log_writer.append(record(2))


async def test_what_is_entered_is_written_when_the_log_writer_closes(log_writer, path):
    log_writer.append(record(1))
    await log_writer.close()
    assert logged(path) == [1]


async def test_on_a_full_disk_requests_are_refused_and_entries_are_written_later(log_writer, disk, failures, path):
    done, errors = [], [FULL]

    def act():
        if errors:
            raise errors.pop()
        done.append(logged(path))

    log_writer.append(record(1))
    log_writer.run_once_durable(lambda: done.append("before"))
    log_writer.run_once_durable(act)
    with pytest.raises(Refusal) as caught:
        await log_writer.wait_until_durable()
    assert caught.value.kind == "no-space"
    with pytest.raises(Refusal):
        log_writer.check()
    assert disk.problem
    await log_writer.wait_until_durable(on_reserve=True)
    assert not log_writer.is_blocked
    assert log_writer.problem == disk.problem  # nothing new before there is room for the reserve
    assert disk.keep_reserve(100)
    log_writer.check()
    assert failures == []
    assert done == ["before", [1]]  # each once


@pytest.mark.parametrize("error", [FULL, BROKEN], ids=["full", "broken"])
async def test_a_failed_sync_ends_the_server_and_nothing_is_logged(error, log_writer, failures, path):
    log_writer.append(record(1), Segment(path, [error]))
    with pytest.raises(Refusal):
        await log_writer.wait_until_durable()
    log_writer.append(record(2))
    with pytest.raises(Refusal):
        await log_writer.wait_until_durable(on_reserve=True)
    await log_writer.close()
    assert [type(failure) for failure in failures] == [SyncError]
    assert logged(path) == []


async def test_a_broken_disk_ends_the_server(log_writer, failures):
    def fail():
        raise BROKEN

    log_writer.run_once_durable(fail)
    with pytest.raises(Refusal):
        await log_writer.wait_until_durable()
    await log_writer.close()
    assert failures == [BROKEN]


async def test_a_statement_that_fails_ends_the_server_in_one_line(log_writer, failures):
    log_writer.enter(Change("run", None, {}))
    with pytest.raises(Refusal):
        await log_writer.wait_until_durable()
    await log_writer.close()
    assert "database cannot be written" in str(failures[0])
    assert "\n" not in str(failures[0])


async def test_the_write_ahead_log_can_be_truncated(log_writer, path):
    log_writer.append(record(1))
    await log_writer.wait_until_durable()
    ahead = path.with_name("x.sqlite-wal")
    assert ahead.stat().st_size > 0
    log_writer.truncate()
    await log_writer.wait_until_durable()
    assert ahead.stat().st_size == 0
