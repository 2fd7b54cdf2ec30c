"""The wait of a server for the lead of a log that it follows."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Protocol

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.console_log import event

from offbeat.service.engine.replay import Replay
from offbeat.service.log.log import LogUnavailableError, Row, UnknownOutcomeError
from offbeat.service.log.place import OWNER as PLACE
from offbeat.service.log.place import check_place
from offbeat.service.log.signs_of_life import SeenLeader
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.term import Term
from offbeat.service.store.disk import UnreachableFilesError

_LOOK_SECONDS = 0.2  # between two looks at the log
_STANDBY_BEAT_SECONDS = 1.0  # between two signs of a standby's life
_SILENT_SECONDS = 2.5  # after which a standby tries to lead


async def take_lead(log: SqlLog, term: Term, replay: Replay, check: Callable[[], None]) -> None:
    """Follow a log that others may lead, until none of them is heard of; then lead.

    Nothing is lost if the leader only seems to be gone. The first server that appends a row behind the last one leads.
    The other one's next append fails.

    ``check`` is called before this server tries to lead.

    Raises:
        OffbeatError: A row does not follow from those before it; or by ``check``.
    """
    silence, stands_by, next_beat = Silence(), False, 0.0
    while True:
        try:
            async for row in term.follow():
                replay.apply(row)
            leader = await log.leader()
            if silence.is_long(term.number, leader):
                check()
                await log.end_hung()
                if await _lead(log, term):
                    event("leads", logging.WARNING, epoch=term.epoch)
                    return
            if not stands_by:
                stands_by = True
                event("stands_by", logging.WARNING, leader=leader and leader.name)
            if time.monotonic() >= next_beat:
                await log.stand_by(term.number, term.epoch, socket.gethostname())
                next_beat = time.monotonic() + _STANDBY_BEAT_SECONDS
        except (LogUnavailableError, UnknownOutcomeError) as error:
            event("log_unavailable", logging.WARNING, problem=str(error))
        except UnreachableFilesError as error:
            event("blobs_unavailable", logging.WARNING, problem=str(error))
        await asyncio.sleep(_LOOK_SECONDS)


class Silence:
    """The time since a leader has shown itself, by this machine's own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[int, SeenLeader | None] | None = None
        self._since = clock()

    def is_long(self, number: int, leader: SeenLeader | None) -> bool:
        """Take the last row's number and the last sign; return whether both are old.

        A log that nobody has led yet is silent at once.
        """
        if leader is None and number == 0:
            return True
        if (number, leader) != self._last:
            self._last, self._since = (number, leader), self._clock()
        return self._clock() - self._since >= _SILENT_SECONDS


async def _lead(log: SqlLog, term: Term) -> bool:
    """Try to lead a log that has not left, and lies where it was."""
    check_place(log.newest_now(PLACE), log.place)
    return await term.lead()


class FollowsRows(Protocol):
    """Follows a log, row by row."""

    def apply(self, row: Row) -> None:
        """Make the change of the next row."""
        ...


async def lead_at_once(log: SqlLog, term: Term, replay: FollowsRows) -> None:
    """Follow a log that nobody else can have to its end, and lead from there."""
    try:
        while True:
            async for row in term.follow():
                replay.apply(row)
            if await _lead(log, term):
                return
    except (LogUnavailableError, UnknownOutcomeError) as error:
        raise OffbeatError(f"the log cannot be used: {error}") from error
