"""The promises of a log, whatever keeps it.

A log is a list of rows with the numbers 1, 2, …. Several processes may open it; one of them, the leader, appends.
**The number of a row is the fence between leaders**: an append names the last row that its writer knows, and holds only
if no other row has come since. So a leader that was replaced without noticing cannot add a row behind the first one of
its successor, whatever clocks and networks do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from offbeat_core.errors import OffbeatError

EPOCH = "epoch"
"""The name of the row with which a leader's epoch begins; its arguments are the leader's own id."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the log."""

    number: int  # 1, 2, …
    epoch: int  # of the leader that appended it: 1, 2, …
    name: str  # the coordinator's call, or EPOCH
    arguments: str  # JSON
    body: bytes | None = None  # a small update
    blob: str | None = None  # the name of the blob that holds a large update
    digest: str | None = None  # of the update, also of one that does not count


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
