"""An operator's control of the run: pause, resume, extend, end."""

import math
from typing import Any

from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.engine.engine import Engine
from offbeat.service.log.log import RUN, Change
from offbeat.service.refusal import Refusal


class RunControl:
    """Pauses, resumes, extends and ends the run; each change lasts over restarts.

    Each change and its entry in the audit log are on disk before a method returns.
    """

    def __init__(self, engine: Engine, audit: AuditLog) -> None:
        self._engine = engine
        self._audit = audit

    async def set_paused(self, *, is_paused: bool) -> None:
        """Give out no more work, or again; updates of visits under way count."""
        engine = self._engine
        engine.log_writer.check()
        async with engine.lock:
            if engine.run.is_paused != is_paused:
                change = "pause" if is_paused else "resume"
                self._change(change, {}, "run paused" if is_paused else "run resumed")
                if not is_paused and engine.client_evaluations is not None:
                    engine.client_evaluations.wait_again()
                await engine.try_to_assign()
                engine.run.alarm.ring()
        await engine.log_writer.wait_until_durable()

    async def extend(self, versions: int) -> None:
        """Let the run end at a later version; a finished run goes on."""
        engine = self._engine
        engine.log_writer.check()
        async with engine.lock:
            before = engine.run.stop_versions
            if versions < before:
                reason = f"the run ends at version {before:g}" if before < math.inf else "the run has no end"
                raise Refusal("cannot-extend", f"{reason}, and stop.versions may only grow")
            if versions > before:
                if engine.run.has_ended_early:
                    raise Refusal(
                        "cannot-extend",
                        "the run has ended by stop.target or stop.patience, so a later version does not continue it: "
                        "begin a new run, for instance from its exported model (service.initial_model)",
                    )
                if engine.run.is_finished:
                    engine.free_slots()
                self._change("extend", {"versions": versions}, "run extended", versions=versions, before=before)
                await engine.try_to_assign()
                engine.run.alarm.ring()
        await engine.log_writer.wait_until_durable()

    async def end(self) -> None:
        """End the run at its newest version; it may be extended later."""
        engine = self._engine
        engine.log_writer.check()
        async with engine.lock:
            if not engine.run.is_finished:
                self._change("end", {"versions": engine.coordinator.algorithm.version}, "run ended by operator")
                await engine.try_to_assign()
                engine.run.alarm.ring()
        await engine.log_writer.wait_until_durable()

    def _change(self, change: str, values: dict[str, Any], kind: str, /, **facts: Any) -> None:
        self._engine.run.state.apply(change, values)
        self._audit.add(kind, Change(RUN, change, values), **facts)
