"""The log's writer, on a real log in SQLite whose appends a test lets fail."""

import asyncio
import errno
import os
import sqlite3
from contextlib import closing

import pytest
from offbeat_core.errors import OffbeatError
from sqlalchemy import event

from offbeat.service.log import log_writer as module
from offbeat.service.log.log import Change, LogUnavailableError, UnknownOutcomeError
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.log.term import Term
from offbeat.service.refusal import Refusal
from offbeat.service.store.disk import Disk

FULL, BROKEN = (OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EIO))
DROP = Change("coordinator", "drop", {"client": 0})
pytestmark = pytest.mark.anyio


def logged(path):
    with closing(sqlite3.connect(path)) as database:
        return [name for (name,) in database.execute("SELECT name FROM log WHERE owner != 'term' ORDER BY number")]


class Opened:
    """A log with its writer; an append fails with each of ``errors`` in turn, before or after it was made."""

    def __init__(self, folder):
        self.path = folder / "x.sqlite"
        self.failures = []
        self.disk = Disk(folder / "reserve", self.failures.append)
        self.log = open_log(sqlite_url(self.path), self.disk.mark_full)
        self.errors = []
        self.append = self.log.append
        self.log.append = self.fail

    async def fail(self, rows, *, after):
        if self.errors:
            error, is_made = self.errors.pop(0)
            if is_made:
                await self.append(rows, after=after)
            raise error
        await self.append(rows, after=after)

    async def lead(self):
        term = Term(self.log, "a")
        assert await term.lead()
        self.writer = LogWriter(term, self.disk, self.failures.append)
        return self.writer


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def opened(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    opened = Opened(tmp_path)
    await opened.lead()
    yield opened
    await opened.writer.close()
    opened.log.close()


async def test_changes_are_logged_then_acted_upon(opened):
    writer, seen = opened.writer, []
    writer.enter(DROP)
    writer.enter(Change("run", "pause", {}))
    writer.run_once_durable(lambda: seen.append(logged(opened.path)))
    await writer.wait_until_durable()
    assert writer.number == 3  # the first one begins the epoch
    assert seen == [["drop", "pause"]]


async def test_all_that_wait_share_one_append(opened):
    appends = []

    async def append(rows, *, after):
        appends.append(len(rows))
        await opened.append(rows, after=after)

    opened.log.append = append
    opened.writer.enter(DROP)
    await asyncio.sleep(0)  # the first append is under way
    for _ in range(20):
        opened.writer.enter(DROP)
    await opened.writer.wait_until_durable()
    assert sum(appends) == 21
    assert len(appends) <= 2


async def test_what_is_entered_is_written_when_the_log_writer_closes(opened):
    opened.writer.enter(DROP)
    await opened.writer.close()
    assert logged(opened.path) == ["drop"]


@pytest.mark.parametrize(
    ("error", "is_made"), [(LogUnavailableError, False), (UnknownOutcomeError, False), (UnknownOutcomeError, True)]
)
async def test_while_the_log_cannot_be_written_requests_are_refused_and_changes_are_logged_once(error, is_made, opened):
    writer = opened.writer
    opened.errors = [(error("no connection"), is_made)]
    writer.enter(DROP)
    with pytest.raises(Refusal) as caught:
        await writer.wait_until_durable()
    assert caught.value.kind == "no-space"
    with pytest.raises(Refusal):
        writer.check()
    assert writer.is_blocked
    writer.enter(Change("run", "pause", {}))
    await writer.wait_until_durable(on_reserve=True)
    writer.check()
    assert opened.failures == []
    assert logged(opened.path) == ["drop", "pause"]


async def test_heartbeats_are_refused_once_many_rows_wait_for_a_log_that_cannot_be_written(opened, monkeypatch):
    monkeypatch.setattr(module, "_MOST_WAITING", 3)
    writer = opened.writer
    opened.errors = [(LogUnavailableError("no connection"), False)]
    for _ in range(4):
        writer.enter(DROP)
    writer.check_backlog()  # the log can be written
    with pytest.raises(Refusal):
        await writer.wait_until_durable()
    for _ in range(3):
        writer.check_backlog()
        writer.enter(DROP)
    with pytest.raises(Refusal, match="no connection"):
        writer.check_backlog()
    await writer.wait_until_durable(on_reserve=True)
    writer.check_backlog()
    assert logged(opened.path) == ["drop"] * 7


async def test_a_leader_that_cannot_show_itself_refuses_while_an_append_hangs(opened, monkeypatch):
    monkeypatch.setattr(module, "_SILENT_SECONDS", 0.05)
    writer, ends = opened.writer, asyncio.Event()

    async def hang(rows, *, after):
        await asyncio.wait_for(ends.wait(), 5)
        await opened.append(rows, after=after)

    opened.log.append = hang
    await asyncio.sleep(0.1)
    assert not writer.is_silent  # nobody follows this log
    writer.note_sign()
    writer.enter(DROP)
    writer.check()
    await asyncio.sleep(0.1)
    assert writer.is_silent
    with pytest.raises(Refusal, match="the log does not answer"):
        await writer.wait_until_durable()
    writer.note_sign()
    ends.set()
    await writer.wait_until_durable()
    assert logged(opened.path) == ["drop"]


async def test_an_action_on_a_full_disk_is_tried_again_and_those_before_it_are_not(opened):
    writer, done, errors = opened.writer, [], [FULL]

    def act():
        if errors:
            raise errors.pop()
        done.append(logged(opened.path))

    writer.enter(DROP)
    writer.run_once_durable(lambda: done.append("before"))
    writer.run_once_durable(act)
    with pytest.raises(Refusal):
        await writer.wait_until_durable()
    await writer.wait_until_durable(on_reserve=True)
    assert done == ["before", ["drop"]]
    assert writer.problem == opened.disk.problem  # nothing new before there is room for the reserve
    assert opened.disk.keep_reserve(100)
    writer.check()
    assert opened.failures == []


async def test_a_broken_disk_ends_the_server(opened):
    def fail():
        raise BROKEN

    opened.writer.run_once_durable(fail)
    with pytest.raises(Refusal):
        await opened.writer.wait_until_durable()
    opened.writer.enter(DROP)
    with pytest.raises(Refusal):
        await opened.writer.wait_until_durable(on_reserve=True)
    assert opened.failures == [BROKEN]
    assert logged(opened.path) == []


@pytest.mark.parametrize("error", [LogUnavailableError(), ConnectionError(), AssertionError()])
async def test_an_error_without_a_message_refuses_requests_too(error, opened, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.2)
    opened.errors = [(error, False)]
    opened.writer.enter(DROP)
    with pytest.raises(Refusal):
        await opened.writer.wait_until_durable()
    opened.writer.enter(DROP)
    with pytest.raises(Refusal):
        opened.writer.check()
    if opened.failures:
        with pytest.raises(Refusal):
            await opened.writer.wait_until_durable(on_reserve=True)


async def test_a_database_that_fails_otherwise_ends_the_server_in_one_line(opened):
    with closing(sqlite3.connect(opened.path)) as database:
        database.execute("DROP TABLE bodies")
    opened.writer.enter(DROP, body=b"x")
    with pytest.raises(Refusal):
        await opened.writer.wait_until_durable()
    assert str(opened.failures[0]) == "the server's database cannot be used: no such table: bodies"


async def test_a_server_that_is_replaced_ends_and_answers_nothing_more(opened):
    other = Term(opened.log, "b")
    async for _ in other.follow():
        pass
    assert await other.lead()
    opened.writer.enter(DROP)
    with pytest.raises(Refusal):
        await opened.writer.wait_until_durable()
    (failure,) = opened.failures
    assert isinstance(failure, OffbeatError)
    assert str(failure).startswith("another server leads now")
    assert logged(opened.path) == []


async def test_a_full_disk_is_told_and_the_changes_are_logged_once_there_is_room(opened):
    limits = []

    def limit(connection, _):
        connection.execute(f"PRAGMA max_page_count = {limits[0]}")

    await opened.log._in_thread(opened.log._engine.dispose)
    limits[:] = [1]
    event.listen(opened.log._engine, "connect", limit)
    opened.writer.enter(DROP, body=bytes(2**16))
    with pytest.raises(Refusal, match="database or disk is full"):
        await opened.writer.wait_until_durable()
    assert opened.disk.problem == "database or disk is full"
    limits[:] = [1000]
    await opened.log._in_thread(opened.log._engine.dispose)
    await opened.writer.wait_until_durable(on_reserve=True)
    assert logged(opened.path) == ["drop"]


async def test_the_write_ahead_log_can_be_truncated(opened):
    opened.writer.enter(DROP)
    await opened.writer.wait_until_durable()
    ahead = opened.path.with_name("x.sqlite-wal")
    assert ahead.stat().st_size > 0
    await opened.writer.tidy()
    assert ahead.stat().st_size == 0


async def test_a_server_that_leads_is_confirmed_and_looks_at_the_log_once_for_all_that_wait(opened, monkeypatch):
    looks, last_epoch = [], opened.log.last_epoch

    async def look():
        looks.append(1)
        return await last_epoch()

    monkeypatch.setattr(opened.log, "last_epoch", look)
    opened.writer.enter(DROP)
    await asyncio.gather(*(opened.writer.confirm() for _ in range(20)))
    assert len(looks) <= 2


async def test_a_server_that_was_replaced_confirms_nothing(opened):
    other = Term(opened.log, "b")
    async for _ in other.follow():
        pass
    assert await other.lead()
    with pytest.raises(Refusal, match="another server leads now"):
        await opened.writer.confirm()
