"""The writer of the audit log, and the facts of a start."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from offbeat_core.serving.console_log import event

from offbeat.service.audit.verification import LogHead, entry_text
from offbeat.service.log.log import Change
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.server_settings import ServerSettings, ServiceSettings
from offbeat.service.store.server_state import ServerState

COUNT_SECONDS = 600.0
"""Events that anybody can cause are counted for so long, and then make one entry."""

OWNER = "audit"
"""The owner of the log's rows that only report something."""

acting: ContextVar[str | None] = ContextVar("acting", default=None)
"""The id of the admin token behind the request, or the person, which goes into each entry."""


class AuditLog:
    """The entries of a server's audit log, for the event loop.

    Each is in the log's row of the change that it reports. ``head`` is that of the entries that are on disk, at first
    of those of earlier servers.
    """

    def __init__(self, log_writer: LogWriter, state: ServerState, clock: Callable[[], float] = time.time) -> None:
        self.head = state.audit_head
        self._state = state
        self._log_writer = log_writer
        self._clock = clock
        self._counts: dict[str, Counter[str]] = {}  # by the kind of entry

    def add(self, kind: str, change: Change | None = None, /, **facts: Any) -> None:
        """Enter an entry with the change that it reports; None if it reports none."""
        if (token := acting.get()) is not None:
            facts["by"] = token
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        text = entry_text(self._state.audit_head.number + 1, at, kind, facts)
        head = self._state.audit_head = self._state.audit_head.after(text)
        self._log_writer.enter(change or Change(OWNER, "report", {}), entry=text, head=head.digest)
        self._log_writer.run_once_durable(lambda: self._set_head(head))
        event(kind, **facts)

    def count(self, kind: str, name: str) -> None:
        """Count an event that anybody can cause; ``flush`` enters the counts."""
        self._counts.setdefault(kind, Counter())[name] += 1

    def flush(self) -> None:
        """Enter the counts so far, unless the disk cannot be written."""
        if self._log_writer.problem is not None:
            return
        counts, self._counts = self._counts, {}
        for kind, numbers in counts.items():
            self.add(kind, **numbers)

    async def flush_regularly(self) -> None:
        """Enter the counts every ten minutes."""
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            self.flush()

    def _set_head(self, head: LogHead) -> None:
        self.head = head


def start_facts(settings: ServerSettings) -> dict[str, Any]:
    """Return the version of Offbeat and all settings.

    ``config`` has those that are fixed, ``settings`` those that may change between starts.
    """
    names = set(ServiceSettings.model_fields) - ServiceSettings.fixed()
    changeable = settings.service.model_dump(include=names) | {
        "hosts": list(settings.service.hosts),
        "tls": settings.certificates is not None,
        "evaluate_every": settings.evaluate_every,
        "evaluate_on_clients": settings.evaluate_on_clients,
        "keep_best": settings.best_metric and settings.best_metric.name,
        "login": settings.login and settings.login.issuer,
    }
    return {
        "version": metadata.version("offbeat"),
        "config": _in_json(settings.config),
        "settings": _in_json(changeable),
    }


def _in_json(value: Any) -> Any:
    """Return a value with texts in place of numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _in_json(one) for name, one in value.items()}
    return [_in_json(one) for one in value] if isinstance(value, list) else value
