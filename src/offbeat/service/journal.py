"""Group commit: many requests wait for one write to the disk."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from offbeat.service.refusal import no_space
from offbeat.service.store import Record, log, sync_file

_PATIENCE_SECONDS = 1.0  # between two tries to write to a disk that is full
# What may be mended while the server runs. After any other failure nobody knows what is on the disk.
_PASSING = ("FULL", "READONLY", "CANTOPEN", "BUSY")


@dataclass
class _Batch:
    """What is written at once."""

    records: list[dict[str, Any]] = field(default_factory=list)
    statements: list[sa.Executable] = field(default_factory=list)
    files: set[Path] = field(default_factory=set)  # that records of the batch refer to, and are not on disk yet
    publications: list[Callable[[], None]] = field(default_factory=list)  # once all of it is on disk
    last: int = 0  # the number of the last entry


class Journal:
    """Writes to the database, in the order of the calls, in a thread of its own; all methods are for the event loop.

    What is entered here has taken place already, in memory. Nobody is told of it before ``durable`` returns. If the
    disk is full, who waits is refused, and what was entered is written once there is space again.

    Args:
        database: Where to write.
        number: The number of the log's last record.
        failed: Called in the event loop if the disk fails otherwise: the server has to end, and starts again from
            what is on the disk.
    """

    def __init__(self, database: sa.Engine, number: int, failed: Callable[[BaseException], None]) -> None:
        self.number = number
        self.problem: str | None = None  # why nothing can be written now
        self._database = database
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting = _Batch()
        self._entered = self._durable = 0
        self._listeners: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def record(self, name: str, arguments: dict[str, Any], *place: Any, file: Path | None = None) -> int:
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

    def check(self) -> None:
        """Raise ``Refusal`` if the disk cannot be written now."""
        if self.problem is not None:
            raise no_space(self.problem)

    async def durable(self) -> None:
        """Wait until all that has been entered so far is on disk.

        Raises:
            Refusal: The disk is full, or cannot be written; what was entered will be on it once that is mended.
        """
        if self._durable >= self._entered:
            return
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

    def _enter(self, add: Callable[[_Batch], None], file: Path | None = None) -> None:
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
        except BaseException as error:
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
        # An error of a sync is told once only, so there is no trying again: what it was about may be lost.
        for path in batch.files:
            sync_file(path)
        batch.files.clear()
        try:
            if batch.statements or batch.records:
                self._commit(batch)
        except exc.OperationalError as error:
            if getattr(error.orig, "sqlite_errorname", "").partition("_")[2] not in _PASSING:
                raise
            return str(error.orig)
        while batch.publications:
            batch.publications[0]()
            del batch.publications[0]
        return None

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
        self.problem = None
        self._durable = last
        while self._listeners and self._listeners[0][0] <= last:
            _, future = self._listeners.popleft()
            if not future.done():
                future.set_result(None)

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        while self._listeners:
            _, future = self._listeners.popleft()
            if not future.done():
                future.set_exception(no_space(problem))
