"""Logging of the coordinator's calls, and the files that their updates lie in."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from offbeat_core.serving.console_log import event

from offbeat.coordinator import RecordedCall
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.store.call_records import record_of, vector_of
from offbeat.service.store.client_tally import ClientTally
from offbeat.service.store.log_writer import LogWriter
from offbeat.service.store.segments import Segment, Segments
from offbeat.service.updates.update_body import StoredUpdate

# After a restart no client is available before it checks in, and the record of an assignment names the clients.
_NOT_LOGGED = frozenset({"present", "absent"})


class CallRecorder:
    """Turns each call of the run's coordinator into a record of the log.

    Small updates reach the disk with their records, from ``segments``. The run's history and ``tally`` follow the log.

    Attributes:
        update_files: The files of updates that are needed.
        stored_bytes: Bytes of all updates that were logged, also of those deleted since.
    """

    def __init__(self, run: LiveRun, log_writer: LogWriter, segments: Segments, tally: ClientTally) -> None:
        self.update_files = UpdateFiles()
        self.stored_bytes = 0
        self._run = run
        self._log_writer = log_writer
        self._segments = segments
        self._tally = tally
        run.coordinator.record = self._record

    def delete_covered(self, number: int) -> None:
        """Delete the files of updates that only records up to ``number`` need."""
        unused = self.update_files.forget(number)
        for path in unused:
            path.unlink(missing_ok=True)
        self._segments.release(unused)

    def _record(self, call: RecordedCall) -> None:
        if call.name in _NOT_LOGGED:
            return
        coordinator = self._run.coordinator
        record = replace(record_of(call, self._log_writer.number + 1), outcome=self._outcome(call))
        self._tally.note(record)
        shown = {name: value for name, value in record.arguments.items() if name != "share"}
        event(call.name, version=coordinator.algorithm.version, **shown)
        segment: Segment | None = None
        update = vector_of(call)
        if isinstance(update, StoredUpdate):
            self.stored_bytes += update.size
            self.update_files.add(record.number, update)
            # A small update was appended just before this call; a large one is on disk.
            current = self._segments.current
            segment = current if current is not None and current.path == update.path else None
        self._log_writer.append(record, segment)
        self._run.alarm.expect(coordinator.next_lapse())
        self._run.history.note(call, coordinator)

    def _outcome(self, call: RecordedCall) -> list[Any] | None:
        """Return what the call's record says beside its arguments, for counts by client."""
        visits = self._run.coordinator.visits
        if call.name == "receive":
            receipt = visits.receipt(call.arguments["client"], call.arguments["visit"])
            return None if receipt is None else [receipt.counted, receipt.staleness]
        if call.name == "lapse":
            return [client for client in self._tally.working() if not visits.has_slot(client)]
        return None


class UpdateFiles:
    """The files of updates, each with its last record and its updates in memory."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[int, list[weakref.ref[StoredUpdate]]]] = {}

    def __contains__(self, path: Path) -> bool:
        """Return whether a file is still referred to."""
        return path in self._files

    def add(self, number: int, update: StoredUpdate) -> None:
        """Keep an update's file while record ``number`` or an object needs it."""
        last, references = self._files.get(update.path, (0, []))
        references.append(weakref.ref(update))
        self._files[update.path] = (max(last, number), references)

    def forget(self, number: int) -> list[Path]:
        """Forget and return the files that only records up to ``number`` need."""
        unused: list[Path] = []
        for path, (last, references) in list(self._files.items()):
            alive = [reference for reference in references if reference() is not None]
            self._files[path] = (last, alive)
            if last <= number and not alive:
                unused.append(path)
                del self._files[path]
        return unused
