"""The log's writer: many requests share one append (group commit)."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.console_log import event
from pydantic_core import to_json

from offbeat.service.log.log import Change, Log, LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.term import Term
from offbeat.service.refusal import Refusal, unwritable
from offbeat.service.store.disk import Disk, is_temporary

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

_RETRY_SECONDS = 1.0  # between two attempts while the log cannot be written
_MOST_WAITING = 100_000  # rows, some 60 MB, for a log that cannot be written
_SILENT_SECONDS = 2.0  # without a sign of life; a standby tries to lead half a second later


@dataclass
class _Batch:
    """Rows that are appended at once."""

    rows: list[Row] = field(default_factory=list[Row])
    actions: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])  # once they are durable
    last: int = 0  # the number of the last entry


class LogWriter:
    """Appends a leader's changes in order, all that wait at once.

    Every change has already taken place in memory. No client may see it before ``wait_until_durable`` returns. While
    the log cannot be written, on a full disk or without a connection, the waiting requests are refused, and the changes
    are appended once it can.

    Args:
        term: Leads the log.
        disk: Tells whether the server takes in anything new.
        failed: Called once nothing more may be answered: another process leads, or the log's content is unknown.
        patience_seconds: How long requests wait at first while the log cannot be written.

    Attributes:
        number: That of the last row that was entered.
    """

    def __init__(
        self, term: Term, disk: Disk, failed: Callable[[BaseException], None], patience_seconds: float = 0.0
    ) -> None:
        self.number = term.number
        self._patient_until = asyncio.get_running_loop().time() + patience_seconds
        self._term = term
        self._disk = disk
        self._failed = failed
        self._problem: str | None = None
        self._has_failed = False  # then nothing more is appended
        self._is_replaced = False
        self._next = _Batch()
        self._entered = self._durable = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._confirming = asyncio.Lock()
        self._asked = self._confirmed = 0  # of the calls of ``confirm``
        self._covered = 0  # the last row whose update a snapshot holds
        self._loop = asyncio.get_running_loop()
        self._last_sign: float | None = None
        self._task = asyncio.create_task(self._work())

    @property
    def log(self) -> Log:
        """The log."""
        return self._term.log

    @property
    def epoch(self) -> int:
        """The leader's epoch."""
        return self._term.epoch

    @property
    def leader(self) -> str:
        """The leader's id.

        Two epochs have one number if a log was restored and went on, but never one leader.
        """
        return self._term.holder

    @property
    def problem(self) -> str | None:
        """The reason why nothing can be written, or nothing new is taken in, or None."""
        return self._problem or ("the log does not answer" if self.is_silent else self._disk.problem)

    @property
    def is_silent(self) -> bool:
        """Return whether another server may lead, since this one has not shown itself.

        That is never so in a folder, which no other server follows.
        """
        return self._last_sign is not None and self._loop.time() - self._last_sign > _SILENT_SECONDS

    def note_sign(self) -> None:
        """Take note that the leader has shown itself."""
        self._last_sign = self._loop.time()

    @property
    def is_blocked(self) -> bool:
        """Return whether the last attempt to append has failed."""
        return self._problem is not None

    def check_backlog(self) -> None:
        """Refuse if the log cannot be written now, and many rows wait for it."""
        if len(self._next.rows) >= _MOST_WAITING:
            self.check()

    def enter(
        self,
        change: Change,
        *,
        digest: str | None = None,
        blob: str | None = None,
        body: bytes | None = None,
        entry: str | None = None,
        head: str | None = None,
    ) -> None:
        """Enter the next row, of a change and what belongs to it; see ``Row``."""
        self.number += 1
        owner, name, arguments = change
        text = to_json(arguments, inf_nan_mode="constants").decode()
        row = Row(self.number, self._term.epoch, owner, name, text, digest, blob, entry, head, body)
        self._next.rows.append(row)
        self._count_entry()

    def run_once_durable(self, action: Callable[[], None]) -> None:
        """Run an action once all entries so far are durable."""
        self._next.actions.append(action)
        self._count_entry()

    def check(self) -> None:
        """Refuse if the log cannot be written now."""
        problem = self.problem
        if problem is not None:
            raise self._refusal(problem)

    async def wait_until_durable(self, *, on_reserve: bool = False) -> None:
        """Wait until all that has been entered so far is durable.

        ``on_reserve`` waits also while the disk is full and the log is written to the released reserve.

        Raises:
            Refusal: The log cannot be written; the entries will be in it once that has passed.
        """
        if self._durable >= self._entered:
            return
        if not on_reserve or self._has_failed:
            self.check()
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((self._entered, future))
        await future

    async def confirm(self) -> None:
        """Wait until the log has shown that no other server led when this was called.

        Raises:
            Refusal: Another one leads, or the log cannot be read.
        """
        self._asked += 1
        ticket = self._asked
        async with self._confirming:
            if self._confirmed >= ticket:  # by a look at the log that began since
                return
            asked = self._asked
            try:
                epoch = await self._term.log.last_epoch()
            except LogUnavailableError as error:
                raise unwritable(str(error)) from None
            if epoch != self._term.epoch:
                raise _replaced()
            self._confirmed = asked

    async def newest(self, which: "ColumnElement[bool]", limit: int) -> list[Row]:
        """Return the newest durable rows for which a condition holds; see ``Log``.

        Raises:
            Refusal: The log cannot be read.
        """
        try:
            return await self._term.log.newest(which, limit)
        except LogUnavailableError as error:
            raise unwritable(str(error)) from None

    async def forget_bodies(self, last: int) -> None:
        """Delete the small updates of the rows up to ``last``, or have ``tidy`` do it."""
        self._covered = last
        with suppress(LogUnavailableError):
            await self._term.log.forget_bodies(last)

    async def tidy(self) -> None:
        """Give back the space that the log does not need."""
        await self._term.log.tidy()
        await self.forget_bodies(self._covered)
        await self._term.log.tidy()

    async def close(self) -> None:
        """Append the remaining entries, unless the log cannot be written."""
        self._is_stopping = True
        self._changed.set()
        await self._task

    def _count_entry(self) -> None:
        self._entered += 1
        self._next.last = self._entered
        self._changed.set()

    async def _work(self) -> None:
        try:
            while True:
                if not self._next.last:
                    if self._is_stopping:
                        return
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                batch, self._next = self._next, _Batch()
                while (problem := await self._append(batch)) is not None:
                    event("log_unavailable", logging.WARNING, problem=problem)
                    if self._is_stopping or asyncio.get_running_loop().time() >= self._patient_until:
                        self._refuse_waiters(problem)
                    if self._is_stopping:
                        return
                    await asyncio.sleep(_RETRY_SECONDS)
                self._release_waiters(batch.last)
        except ReplacedError as error:
            self._is_replaced = True
            self._end(OffbeatError(f"another server leads now, so this one ends: {error}"))
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        self._has_failed = True
        self._refuse_waiters(str(error) or repr(error))
        self._failed(error)

    async def _append(self, batch: _Batch) -> str | None:
        """Append a batch; return why that is not possible now, None if it was."""
        try:
            if batch.rows:
                await self._term.append(batch.rows)
                batch.rows = []
            while batch.actions:
                batch.actions[0]()
                del batch.actions[0]
        except (LogUnavailableError, UnknownOutcomeError) as error:
            return str(error) or repr(error)
        except OSError as error:  # of an action
            if not is_temporary(error):
                raise
            self._disk.refusal(error)
            return str(error.strerror)
        return None

    def _release_waiters(self, last: int) -> None:
        if self._problem is not None:
            event("log_available")
        self._problem = None
        self._durable = last
        while self._waiters and self._waiters[0][0] <= last:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)

    def _refusal(self, problem: str) -> Refusal:
        return _replaced() if self._is_replaced else unwritable(problem)

    def _refuse_waiters(self, problem: str) -> None:
        self._problem = problem
        while self._waiters:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_exception(self._refusal(problem))


def _replaced() -> Refusal:
    return Refusal("stopping", "another server leads now: try again", {"Retry-After": "1"})
