"""The newest lines of a server's log, in memory."""

import json
import logging
from collections import deque

from offbeat_core.serving.console_log import Repeats

from offbeat.service.server_messages import LoggedEntry, LoggedPage

_MOST = 1000


class RecentLines(logging.Handler):
    """Keeps the newest 1,000 events of the level ``info`` or above, for the live page."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.addFilter(Repeats())
        self._lines: deque[LoggedEntry] = deque(maxlen=_MOST)
        self._number = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an event."""
        fields = {name: value for name, value in getattr(record, "fields", {}).items() if value is not None}
        self._number += 1
        self._lines.append(
            LoggedEntry(
                number=self._number,
                at=round(record.created, 3),
                level=record.levelname.lower(),
                kind=record.getMessage().replace("_", " "),
                facts=json.loads(json.dumps(fields, default=str)),
            )
        )

    def page(self, before: int | None, limit: int) -> LoggedPage:
        """Return the newest lines with numbers below ``before``, the last one first."""
        found = [line for line in reversed(self._lines) if before is None or line.number < before]
        return LoggedPage(entries=found[:limit], next=found[limit - 1].number if len(found) > limit else None)
