"""Logs for programs: a line of JSON for each event."""

import json
import logging
import sys
from typing import Any

log = logging.getLogger("offbeat.service")


def event(name: str, level: int = logging.INFO, /, **fields: Any) -> None:
    """Log an event with fields of plain values."""
    if log.isEnabledFor(level):
        log.log(level, name, extra={"fields": fields})


def write_logs(level: int) -> None:
    """Write events of this level and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    log.handlers[:] = [handler]  # a second call does not write events twice
    log.setLevel(level)
    log.propagate = False


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        return json.dumps(line, default=str)
