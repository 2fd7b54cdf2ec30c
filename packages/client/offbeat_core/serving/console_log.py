"""Logs of servers: lines for people on a terminal and in the journal, else JSON."""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

from offbeat_core.errors import OffbeatError

LEVELS = ("debug", "info", "warning")
"""The names of the levels: each request's work; what matters to an operator; trouble."""

log = logging.getLogger("offbeat.service")

run_at_work: ContextVar[str | None] = ContextVar("run_at_work", default=None)
"""The run that the work under way is for, on a server of several runs; each of its events names it."""

_levels: list[int] = []  # of the log before each handler that is attached

_FILES, _FILE_BYTES = 5, 10**7  # of a log file and the older ones beside it
_QUIET_SECONDS = 60.0  # in which trouble that repeats is one line
_MOST_KINDS = 1000  # of trouble whose last lines are known
_SYSLOG = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


def event(name: str, level: int = logging.INFO, /, **fields: Any) -> None:
    """Log an event with fields of plain values."""
    if log.isEnabledFor(level):
        if (run := run_at_work.get()) is not None:
            fields = {"run": run, **fields}
        log.log(level, name, extra={"fields": fields})


@contextmanager
def attached(handler: logging.Handler) -> Generator[None]:
    """Let a handler have the events of its level within the context.

    It has also those that are not written; of a server of several runs, those of the run at work.
    """
    own = run_at_work.get()

    def is_own(record: logging.LogRecord) -> bool:
        return own is None or getattr(record, "fields", {}).get("run") == own

    handler.addFilter(is_own)
    _levels.append(log.level)
    log.addHandler(handler)
    log.setLevel(min(log.getEffectiveLevel(), handler.level))
    try:
        yield
    finally:
        log.removeHandler(handler)
        level = _levels.pop()  # of runs that end in another order the last one restores the first level
        if not _levels:
            log.setLevel(level)


def write_logs(level: str, file: Path | None = None) -> None:
    """Write events of this level and above to standard error, or to a file.

    A file holds at most 10 MB of JSON lines; the four before it are beside it, as ``FILE.1`` and so on. Trouble that
    repeats is one line a minute, except at the level ``debug``.

    Raises:
        OffbeatError: The file cannot be written.
    """
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_formatter(sys.stderr))
    else:
        from logging.handlers import RotatingFileHandler  # imports much, and a command line asks for LEVELS

        try:
            handler = RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=_FILES - 1, encoding="utf-8")
        except OSError as error:
            raise OffbeatError(f"cannot write --log-file {file}: {error.strerror}: name another file") from None
        handler.setFormatter(_JsonLines())
    handler.setLevel(level.upper())
    handler.handleError = lambda record: None  # a full disk; there is no other place to report it
    if level != "debug":
        handler.addFilter(Repeats())
    log.handlers[:] = [handler]  # a second call does not write events twice
    log.setLevel(level.upper())
    log.propagate = False


def logs_of_child(name: str) -> tuple[str, Path | None]:
    """Return the arguments of ``write_logs`` for a child, which has its own file."""
    files = [handler.baseFilename for handler in log.handlers if isinstance(handler, logging.FileHandler)]
    level = log.handlers[0].level if log.handlers else log.level
    return logging.getLevelName(level).lower(), Path(f"{files[0]}.{name}") if files else None


class Repeats(logging.Filter):
    """Lets the same trouble through once a minute, with how often it was ``repeated``.

    Clients can cause any number of refusals. ``clock`` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[tuple[Any, ...], tuple[float, int]] = {}  # when it was logged, and how often it was not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be logged."""
        if record.levelno < logging.WARNING:
            return True
        fields = getattr(record, "fields", {})
        key = (record.levelno, record.getMessage(), *(fields.get(name) for name in ("kind", "client", "front")))
        if len(self._last) > _MOST_KINDS:
            self._last.clear()
        now = self._clock()
        since, repeated = self._last.get(key, (now - _QUIET_SECONDS, 0))
        if now - since < _QUIET_SECONDS:
            self._last[key] = since, repeated + 1
            return False
        self._last[key] = now, 0
        if repeated:
            record.fields = {**fields, "repeated": repeated}
        return True


def _formatter(stream: TextIO) -> logging.Formatter:
    # The journal stores time and level by itself, the level from the line's prefix.
    if _is_journal(stream):
        return _Lines("<%(priority)d>%(text)s")
    if stream.isatty():
        return _Lines("%(asctime)s %(levelname)-7s %(text)s", "%Y-%m-%d %H:%M:%S")
    return _JsonLines()


def _is_journal(stream: TextIO) -> bool:
    """Return whether systemd has connected a stream with the journal."""
    with suppress(OSError, ValueError):
        found = os.fstat(stream.fileno())
        return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False


class _Lines(logging.Formatter):
    """Lines for people; nested values, such as a configuration, are left out."""

    def format(self, record: logging.LogRecord) -> str:
        record.priority = _SYSLOG.get(record.levelno, 3)
        fields = getattr(record, "fields", {}).items()
        shown = [f"{name}={_shown(value)}" for name, value in fields if value is not None and type(value) is not dict]
        record.text = " ".join([record.getMessage().replace("_", " "), *shown])
        return super().format(record)


def _shown(value: Any) -> str:
    """Return a value as text without characters that could change a terminal."""
    if isinstance(value, float):
        return f"{value:.4g}"
    is_plain = not isinstance(value, str) or re.fullmatch(r"[\w./:@+-]+", value)
    return str(value) if is_plain else repr(value)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        return json.dumps(line, default=str)
