"""The log's writer: many requests share one write to the disk (group commit)."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from sqlalchemy import exc

from offbeat.service.refusal import no_space
from offbeat.service.store.database import Change, LogRecord, log
from offbeat.service.store.disk import Disk, is_full, is_temporary
from offbeat.service.store.segments import Segment

_RETRY_SECONDS = 1.0  # between two attempts to write to a full disk
# SQLite's errors that may pass while the server runs. After any other the disk's content is unknown.
_TEMPORARY = ("FULL", "READONLY", "CANTOPEN", "BUSY")
_LARGE_LOG = 2**19  # bytes; a larger write-ahead log is worth truncating


class SyncError(OffbeatError):
    """A failed sync of a file, whose content may be lost."""


@dataclass
class _Batch:
    """Entries that are written at once."""

    records: list[dict[str, Any]] = field(default_factory=list)
    segments: set[Segment] = field(default_factory=set)  # to be synced before the records are written
    actions: list[Callable[[], None]] = field(default_factory=list)  # once all of it is on disk
    last: int = 0  # the number of the last entry


class LogWriter:
    """Writes to the database, in order, in its own thread, for the event loop.

    Every entry is a change that has already taken place in memory. No client may see it before ``wait_until_durable``
    returns. On a full disk the waiting requests are refused, and the entries are written once there is space again.

    The disk is marked full when a write fails for lack of space. If it fails otherwise, ``failed`` is called in the
    event loop: the server has to end, and can be started again from the disk's content. ``number`` is that of the last
    record that was entered.
    """

    def __init__(self, database: sa.Engine, number: int, disk: Disk, failed: Callable[[BaseException], None]) -> None:
        self.number = number
        self._problem: str | None = None
        self._has_failed = False  # then nothing more is written
        self._database = database
        self._disk = disk
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._next = _Batch()
        self._entered = self._durable = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="log writer", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """The reason why nothing can be written, or nothing new is taken in, or None."""
        return self._problem or self._disk.problem

    @property
    def is_blocked(self) -> bool:
        """Return whether the last attempt to write has failed."""
        return self._problem is not None

    def append(self, record: LogRecord, segment: Segment | None = None) -> None:
        """Enter the next record, written once the segment of its update is synced."""
        assert record.number == self.number + 1
        self.number = record.number
        row = record.row()
        self._enter(lambda batch: batch.records.append(row), segment)

    def enter(self, change: Change, entry: str | None = None, head: str | None = None) -> None:
        """Enter the next record of a change, with an entry of the audit log or without."""
        self.append(
            LogRecord(self.number + 1, change.name, change.arguments, owner=change.owner, entry=entry, head=head)
        )

    def run_once_durable(self, action: Callable[[], None]) -> None:
        """Run an action in the log writer's thread once all entries so far are on disk."""
        self._enter(lambda batch: batch.actions.append(action))

    def truncate(self) -> None:
        """Free the space of the database's write-ahead log."""
        self.run_once_durable(self._truncate)

    def check(self) -> None:
        """Refuse if the disk cannot be written now."""
        problem = self.problem
        if problem is not None:
            raise no_space(problem)

    async def wait_until_durable(self, *, on_reserve: bool = False) -> None:
        """Wait until all that has been entered so far is on disk.

        ``on_reserve`` waits also while the disk is full and the log is written to the released reserve.

        Raises:
            Refusal: The disk is full, or cannot be written; the entries will be on it once that has passed.
        """
        if self._durable >= self._entered:
            return
        if not on_reserve or self._has_failed:
            self.check()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self._entered, future))
        await future

    async def close(self) -> None:
        """Write the remaining entries, and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _enter(self, add: Callable[[_Batch], None], segment: Segment | None = None) -> None:
        with self._changed:
            self._entered += 1
            add(self._next)
            if segment is not None:
                self._next.segments.add(segment)
            self._next.last = self._entered
            self._changed.notify()

    def _work(self) -> None:
        try:
            self._write_all()
        except exc.DBAPIError as error:
            self._end(OffbeatError(f"the server's database cannot be written: {error.orig}"))
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        self._has_failed = True
        self._in_loop(self._refuse_waiters, str(error))
        self._in_loop(self._failed, error)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next.last or self._stopping)
                batch, self._next = self._next, _Batch()
            if not batch.last:
                return
            while (problem := self._write(batch)) is not None:
                self._in_loop(self._refuse_waiters, problem)
                with self._changed:
                    if self._changed.wait_for(lambda: self._stopping, _RETRY_SECONDS):
                        return
            self._in_loop(self._release_waiters, batch.last)

    def _write(self, batch: _Batch) -> str | None:
        """Write a batch; return why it cannot be written now, None if it was."""
        try:
            self._sync(batch)
            if batch.records:
                self._commit(batch)
            while batch.actions:
                batch.actions[0]()
                del batch.actions[0]
        except exc.OperationalError as error:
            kind = getattr(error.orig, "sqlite_errorname", "").partition("_")[2]
            if kind not in _TEMPORARY:
                raise
            if kind == "FULL":
                self._make_room(str(error.orig))
            return str(error.orig)
        except OSError as error:
            if not is_temporary(error):
                raise
            problem = error.strerror or str(error)
            if is_full(error):
                self._make_room(problem)
            return problem
        return None

    def _sync(self, batch: _Batch) -> None:
        while batch.segments:
            segment = next(iter(batch.segments))
            try:
                segment.sync()
            except OSError as error:
                # The system reports it once only: a second sync would succeed although the content may be lost.
                raise SyncError(f"{segment.path}: {error.strerror}") from error
            batch.segments.remove(segment)

    def _make_room(self, problem: str) -> None:
        """Release the reserve, which the truncation of a large log needs."""
        self._disk.mark_full(problem)
        with suppress(FileNotFoundError):
            if Path(f"{self._database.url.database}-wal").stat().st_size >= _LARGE_LOG:
                self._truncate()

    def _truncate(self) -> None:
        with suppress(exc.OperationalError), self._database.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def _commit(self, batch: _Batch) -> None:
        with self._database.begin() as connection:
            connection.execute(sa.insert(log), batch.records)
        batch.records.clear()

    def _in_loop(self, call: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, argument)
        except RuntimeError:  # the loop has ended, and with it all requests
            return

    def _release_waiters(self, last: int) -> None:
        self._problem = None
        self._durable = last
        while self._waiters and self._waiters[0][0] <= last:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)

    def _refuse_waiters(self, problem: str) -> None:
        self._problem = problem
        while self._waiters:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_exception(no_space(problem))
