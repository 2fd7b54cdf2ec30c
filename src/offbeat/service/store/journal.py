"""Group commit: many requests wait for one write to the disk."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from offbeat.errors import OffbeatError
from offbeat.service.refusal import no_space
from offbeat.service.store.disk import Disk, is_full, passes
from offbeat.service.store.segments import Segment
from offbeat.service.store.store import Record, log

_PATIENCE_SECONDS = 1.0  # between two tries to write to a disk that is full
# What may be mended while the server runs. After any other failure nobody knows what is on the disk.
_PASSING = ("FULL", "READONLY", "CANTOPEN", "BUSY")

_LARGE_LOG = 2**19  # bytes of a write-ahead log that it pays to release


class SyncError(OffbeatError):
    """A file could not be brought to the disk; what it held may be lost."""


@dataclass
class _Batch:
    """What is written at once."""

    records: list[dict[str, Any]] = field(default_factory=list)
    statements: list[sa.Executable] = field(default_factory=list)
    files: set[Segment] = field(default_factory=set)  # that records of the batch refer to, and are not on disk yet
    publications: list[Callable[[], None]] = field(default_factory=list)  # once all of it is on disk
    last: int = 0  # the number of the last entry


class Journal:
    """Writes to the database, in the order of the calls, in a thread of its own; all methods are for the event loop.

    What is entered here has taken place already, in memory. Nobody is told of it before ``durable`` returns. If the
    disk is full, who waits is refused, and what was entered is written once there is space again.

    Args:
        database: Where to write.
        number: The number of the log's last record.
        disk: Hears of it when the disk is full.
        failed: Called in the event loop if the disk fails otherwise: the server has to end, and starts again from
            what is on the disk.
    """

    def __init__(self, database: sa.Engine, number: int, disk: Disk, failed: Callable[[BaseException], None]) -> None:
        self.number = number
        self._problem: str | None = None
        self._has_failed = False  # nothing is written any more
        self._database = database
        self._disk = disk
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting = _Batch()
        self._entered = self._durable = 0
        self._listeners: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why nothing can be written, or nothing new is taken in, now; None if there is no reason."""
        return self._problem or self._disk.problem

    @property
    def is_blocked(self) -> bool:
        """Whether what has been entered could not be written when it was last tried."""
        return self._problem is not None

    def record(self, name: str, arguments: dict[str, Any], *place: Any, file: Segment | None = None) -> int:
        """Enter a call that changed the coordinator, and return its number.

        Args:
            name: The call's.
            arguments: Plain values.
            place: Where the update is, if there is one: a file in ``updates/``, an offset, a size, and its SHA-256.
            file: What has to be on disk before the record is.
        """
        self.number += 1
        row = Record(self.number, name, arguments, *place).row()
        self._enter(lambda batch: batch.records.append(row), file)
        return self.number

    def execute(self, statement: sa.Executable) -> None:
        """Enter another change of the database."""
        self._enter(lambda batch: batch.statements.append(statement))

    def publish(self, publication: Callable[[], None]) -> None:
        """Have this done in the journal's thread once all that has been entered so far is on disk."""
        self._enter(lambda batch: batch.publications.append(publication))

    def truncate(self) -> None:
        """Have the space released that the database's write-ahead log has grown to."""
        self.publish(self._truncate)

    def check(self) -> None:
        """Raise ``Refusal`` if the disk cannot be written now."""
        problem = self.problem
        if problem is not None:
            raise no_space(problem)

    async def durable(self, *, on_reserve: bool = False) -> None:
        """Wait until all that has been entered so far is on disk.

        Args:
            on_reserve: Wait also while the disk is full and the log is written on the reserve.

        Raises:
            Refusal: The disk is full, or cannot be written; what was entered will be on it once that is mended.
        """
        if self._durable >= self._entered:
            return
        if not on_reserve or self._has_failed:
            self.check()
        future: asyncio.Future[None] = self._loop.create_future()
        self._listeners.append((self._entered, future))
        await future

    async def close(self) -> None:
        """Write what is left, and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _enter(self, add: Callable[[_Batch], None], file: Segment | None = None) -> None:
        with self._changed:
            self._entered += 1
            add(self._waiting)
            if file is not None:
                self._waiting.files.add(file)
            self._waiting.last = self._entered
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
        self._tell(self._refuse, str(error))
        self._tell(self._failed, error)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting.last or self._stopping)
                batch, self._waiting = self._waiting, _Batch()
            if not batch.last:
                return
            while (problem := self._write(batch)) is not None:
                self._tell(self._refuse, problem)
                with self._changed:
                    if self._changed.wait_for(lambda: self._stopping, _PATIENCE_SECONDS):
                        return
            self._tell(self._announce, batch.last)

    def _write(self, batch: _Batch) -> str | None:
        """Write a batch, all or nothing; return why it cannot be written, None if it was."""
        try:
            self._sync(batch)
            if batch.statements or batch.records:
                self._commit(batch)
            while batch.publications:
                batch.publications[0]()
                del batch.publications[0]
        except exc.OperationalError as error:
            kind = getattr(error.orig, "sqlite_errorname", "").partition("_")[2]
            if kind not in _PASSING:
                raise
            if kind == "FULL":
                self._make_room(str(error.orig))
            return str(error.orig)
        except OSError as error:
            if not passes(error):
                raise
            problem = error.strerror or str(error)
            if is_full(error):
                self._make_room(problem)
            return problem
        return None

    def _sync(self, batch: _Batch) -> None:
        while batch.files:
            segment = next(iter(batch.files))
            try:
                segment.sync()
            except OSError as error:
                # It is reported once only, so there is no trying again: what it was about may be lost.
                raise SyncError(f"{segment.path}: {error.strerror}") from error
            batch.files.remove(segment)

    def _make_room(self, problem: str) -> None:
        """Release the reserve, with which the database's write-ahead log, if it is large, can be released, too."""
        self._disk.fill(problem)
        with suppress(FileNotFoundError):
            if Path(f"{self._database.url.database}-wal").stat().st_size >= _LARGE_LOG:
                self._truncate()

    def _truncate(self) -> None:
        with suppress(exc.OperationalError), self._database.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def _commit(self, batch: _Batch) -> None:
        with self._database.begin() as connection:
            for statement in batch.statements:
                connection.execute(statement)
            if batch.records:
                connection.execute(sa.insert(log), batch.records)
        batch.statements.clear()
        batch.records.clear()

    def _tell(self, what: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(what, argument)
        except RuntimeError:  # the loop has ended, and with it all who waited
            return

    def _announce(self, last: int) -> None:
        self._problem = None
        self._durable = last
        while self._listeners and self._listeners[0][0] <= last:
            _, future = self._listeners.popleft()
            if not future.done():
                future.set_result(None)

    def _refuse(self, problem: str) -> None:
        self._problem = problem
        while self._listeners:
            _, future = self._listeners.popleft()
            if not future.done():
                future.set_exception(no_space(problem))
