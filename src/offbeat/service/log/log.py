"""The promises of a log, whatever keeps it.

A log is a list of rows with the numbers 1, 2, …. Several processes may open it; one of them, the leader, appends.
**The number of a row is the fence between leaders**: an append names the last row that its writer knows, and holds only
if no other row has come since. So a leader that was replaced without noticing cannot add a row behind the first one of
its successor, whatever clocks and networks do.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from offbeat_core.errors import OffbeatError

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

COORDINATOR = "coordinator"
"""The owner of the coordinator's calls, which are most of the log."""
RUN = "run"
"""The owner of what begins, configures, pauses or extends the run."""
BEST = "best"
"""The owner of the rows that name the version with the best value of a metric; each row replaces the one before."""
TERM = "term"
"""The owner of the rows with which leaders begin; a row's name is the leader's own id."""


class Change(NamedTuple):
    """A change of the server's state."""

    owner: str  # the part of the state that changes
    name: str
    arguments: dict[str, Any]  # plain values


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the log: a change, and what belongs to it."""

    number: int  # 1, 2, …
    epoch: int  # of the leader that appended it: 1, 2, …
    owner: str
    name: str
    arguments: str = "{}"  # JSON
    digest: str | None = None  # of the update, also of one that does not count
    blob: str | None = None  # the name of the blob that holds a large update
    entry: str | None = None  # of the audit log, JSON
    head: str | None = None  # SHA-256 of the audit log up to that entry
    body: bytes | None = field(default=None, repr=False)  # a small update, while no snapshot covers it

    @property
    def values(self) -> dict[str, Any]:
        """The arguments as plain values."""
        return json.loads(self.arguments)


class ReplacedError(Exception):
    """The rows were not appended: the writer does not know the log's last row."""


class LogUnavailableError(Exception):
    """The log cannot be reached or has no space: nothing is appended, now or later."""


class UnknownOutcomeError(Exception):
    """The connection broke during the commit: the rows may be there, or still come."""


class BrokenLogError(OffbeatError):
    """The log has a gap, or rows out of order."""


class Log(Protocol):
    """A durable list of rows.

    ``append`` and ``read`` may be called by one task at a time.
    """

    async def append(self, rows: Sequence[Row], *, after: tuple[int, int]) -> None:
        """Append rows behind the row ``after``; all of them or none.

        ``after`` is a row's number and epoch, (0, 0) for an empty log. Returns once they are durable. The rows have the
        next numbers.

        Raises:
            ReplacedError: The log has no such row, or another one behind it.
            LogUnavailableError: Nothing was appended.
            UnknownOutcomeError: Nobody knows.
        """
        ...

    async def read(self, after: int, limit: int) -> list[Row]:
        """Return at most ``limit`` durable rows with numbers above ``after``, in order.

        Raises:
            LogUnavailableError: The log cannot be read now.
        """
        ...

    async def newest(self, which: "ColumnElement[bool]", limit: int) -> list[Row]:
        """Return the newest rows for which a condition holds, the last one first.

        The condition is on the table ``log``. The rows are without small updates. Appends do not wait for it.

        Raises:
            LogUnavailableError: The log cannot be read now.
        """
        ...

    async def last_epoch(self) -> int:
        """Return the epoch of the last durable row, 0 for an empty log.

        Raises:
            LogUnavailableError: The log cannot be read now.
        """
        ...

    async def forget_bodies(self, last: int) -> None:
        """Delete the small updates of the rows up to ``last``; the rows stay.

        Raises:
            LogUnavailableError: Some may still be there.
        """
        ...

    async def rows_of(self, owner: str) -> list[Row]:
        """Return the rows of an owner that is not the coordinator, in order.

        Raises:
            LogUnavailableError: The log cannot be read now.
        """
        ...

    async def redact(self, text: str, change: Callable[[Row], Row | None]) -> int:
        """Change rows, all but their numbers, epochs, owners and entries.

        Args:
            text: A part of the arguments of the rows that may have to be changed.
            change: Returns the row that takes a row's place; None to leave it.

        Returns:
            How many rows were changed.

        Raises:
            LogUnavailableError: Some may not have been.
        """
        ...

    async def tidy(self) -> None:
        """Give back the space that the log does not need, if it can."""
        ...
