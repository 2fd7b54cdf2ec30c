"""A process's part in a log: it follows the rows, or leads until it is replaced."""

from collections.abc import AsyncIterator, Sequence

from offbeat.service.log.log import TERM, BrokenLogError, Log, ReplacedError, Row, UnknownOutcomeError

_READ_AT_ONCE = 1000


class Term:
    """Follows a log, and leads it.

    Args:
        log: The log.
        holder: An id that no other process has had.
        number: The last row that the process knows already.
        epoch: That row's epoch; 0 for none.

    Attributes:
        log: The log.
        holder: The process's id.
        number: The last row that the process has read or appended.
        epoch: That row's epoch.
        is_leader: Whether that row, too, was appended by this process, and nobody is known to have replaced it.
    """

    def __init__(self, log: Log, holder: str, number: int = 0, epoch: int = 0) -> None:
        self.number = number
        self.epoch = epoch
        self.is_leader = False
        self.log = log
        self.holder = holder
        self._unsettled: list[Row] = []  # the last append's, if its outcome is unknown

    async def follow(self) -> AsyncIterator[Row]:
        """Yield the rows that have come since, up to the log's end.

        A row counts as read once the next one is asked for: one whose use fails is yielded again.

        Raises:
            BrokenLogError: A row is missing, or of an earlier epoch than the one before.
        """
        while rows := await self.log.read(self.number, _READ_AT_ONCE):
            for row in rows:
                self._check(row)
                yield row
                self.number, self.epoch = row.number, row.epoch

    async def lead(self) -> bool:
        """Try to begin an epoch behind the last row; return whether this process leads.

        If it does not, another row has come: the process follows the log to its end before it tries again.

        Raises:
            BrokenLogError: The log lacks the last row that the process knows.
        """
        row = Row(self.number + 1, self.epoch + 1, TERM, self.holder)
        try:
            await self.log.append([row], after=(self.number, self.epoch))
        except (ReplacedError, UnknownOutcomeError) as error:
            # An append that seemed lost may have held.
            found = await self.log.read(self.number, 1)
            if not found and isinstance(error, ReplacedError):
                raise BrokenLogError(
                    f"the log is broken: it lacks row {self.number} of epoch {self.epoch}, which a checkpoint covers; "
                    "restore a backup"
                ) from None
            if found != [row]:
                return False
        self.number, self.epoch, self.is_leader = row.number, row.epoch, True
        return True

    async def append(self, rows: Sequence[Row]) -> None:
        """Append the leader's next rows, which have the next numbers and its epoch.

        Returns once they are durable. After ``UnknownOutcomeError`` the same rows have to be appended again before any
        others, which tells whether they are in the log.

        Raises:
            ReplacedError: Another process leads: nothing that this one has not appended may be answered.
            BrokenLogError: The log has lost this leader's last row.
            LogUnavailableError: The log cannot be reached; the rows may be appended again.
            UnknownOutcomeError: The rows may be in the log.
        """
        if not self.is_leader:
            raise ReplacedError("this process does not lead")
        assert [(row.number, row.epoch) for row in rows] == [
            (self.number + i, self.epoch) for i in range(1, len(rows) + 1)
        ]
        assert self._unsettled in ([], rows), "other rows than those whose outcome is unknown"
        try:
            await self.log.append(rows, after=(self.number, self.epoch))
        except UnknownOutcomeError:
            self._unsettled = list(rows)
            raise
        except ReplacedError:
            # One append is under way at a time, so rows of this epoch that are there already are these: an earlier
            # attempt, whose outcome was unknown, has held.
            last, *found = await self.log.read(self.number - 1, len(rows) + 1) or [None]
            if last is None or last.epoch != self.epoch or found != list(rows):
                self.is_leader = False
                if last is None:
                    raise BrokenLogError(
                        f"the log lacks row {self.number}, which was acknowledged: its database was restored, or has "
                        "failed over to a replica that had not received it"
                    ) from None
                raise
        self._unsettled = []
        self.number += len(rows)

    def _check(self, row: Row) -> None:
        is_next_epoch = row.epoch == self.epoch + (row.owner == TERM)
        if row.number != self.number + 1 or not is_next_epoch:
            raise BrokenLogError(
                f"the log is broken: row {row.number} of epoch {row.epoch} follows row {self.number} of epoch "
                f"{self.epoch}; restore a backup"
            )
