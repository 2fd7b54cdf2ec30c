"""A leader's signs of life."""

import asyncio
import logging
from collections.abc import Callable

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.console_log import event

from offbeat.service.log.log import LogUnavailableError, ReplacedError
from offbeat.service.log.sql_log import SqlLog

_BEAT_SECONDS = 0.5  # between two signs


async def show_life(log: SqlLog, epoch: int, name: str, then: Callable[[], None] = lambda: None) -> None:
    """Show that this server leads; ends only when another one does.

    ``then`` is called after each sign of life.

    Raises:
        OffbeatError: Another server leads.
    """
    while True:
        try:
            await log.beat(epoch, name)
            then()
        except LogUnavailableError as error:
            event("log_unavailable", logging.WARNING, problem=str(error))
        except ReplacedError as error:
            raise OffbeatError(f"another server leads now, so this one ends: {error}") from None
        await asyncio.sleep(_BEAT_SECONDS)
