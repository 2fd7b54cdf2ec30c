"""Group commit: many requests wait for one append to the log."""

import asyncio
from collections import deque
from collections.abc import Callable

from offbeat.service.log.log import LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.term import Term
from offbeat.service.refusal import no_space

_RETRY_SECONDS = 1.0  # between two attempts while the log cannot be reached


class GroupCommit:
    """Appends a leader's rows in order, all that wait at once.

    A row that was entered is a change that has taken place in memory. Nobody may be told of it before
    ``wait_until_durable`` returns.

    Args:
        term: Leads the log.
        replaced: Called when another process leads: this one must answer nothing more.

    Attributes:
        number: The number of the last row that was entered.
        problem: Why the log cannot be written now; None if it can.
    """

    def __init__(self, term: Term, replaced: Callable[[BaseException], None]) -> None:
        self.number = self._durable = term.number
        self.problem: str | None = None
        self._term = term
        self._replaced = replaced
        self._next: list[Row] = []
        self._has_rows = asyncio.Event()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def enter(self, row: Row) -> None:
        """Enter the next row; its number and epoch are set when it is appended."""
        self.number += 1
        self._next.append(row)
        self._has_rows.set()

    def check(self) -> None:
        """Refuse if the log cannot be written now."""
        if self.problem is not None:
            raise no_space(self.problem)

    async def wait_until_durable(self) -> None:
        """Wait until all rows that were entered so far are durable.

        Raises:
            Refusal: The log cannot be written now. The rows will be in it once that has passed.
        """
        if self._durable >= self.number:
            return
        self.check()
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((self.number, future))
        await future

    async def run(self) -> None:
        """Append what is entered, until another process leads."""
        try:
            while True:
                await self._has_rows.wait()
                self._has_rows.clear()
                rows, self._next = self._next, []
                await self._append(rows)
                self._durable += len(rows)
                self.problem = None
                while self._waiters and self._waiters[0][0] <= self._durable:
                    _release(self._waiters.popleft()[1])
        except ReplacedError as error:
            self._refuse_waiters("another server leads")
            self._replaced(error)

    async def _append(self, rows: list[Row]) -> None:
        while True:
            try:
                return await self._term.append(rows)
            except (LogUnavailableError, UnknownOutcomeError) as error:
                self._refuse_waiters(str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    def _refuse_waiters(self, problem: str) -> None:
        self.problem = problem
        while self._waiters:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_exception(no_space(problem))


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
