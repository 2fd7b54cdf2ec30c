"""Logging of the coordinator's calls."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from offbeat_core.serving.console_log import event

from offbeat.coordinator import RecordedCall
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.store.call_records import record_of, vector_of
from offbeat.service.store.log_writer import LogWriter
from offbeat.service.store.segments import Segment, Segments
from offbeat.service.tally.client_tally import ClientTally
from offbeat.service.updates.update_body import StoredUpdate
from offbeat.service.updates.update_files import UpdateFiles

# After a restart no client is available before it checks in, and the record of an assignment names the clients.
_NOT_LOGGED = frozenset({"present", "absent"})


class CallRecorder:
    """Turns each call that the coordinator has carried out into a record of the log.

    Args:
        run: The run; the calls of its coordinator are logged from now on.
        log_writer: Writes the records.
        segments: Hold the small updates, which reach the disk with their records.
        tally: Counts each client's visits.

    Attributes:
        update_files: The files of updates that are needed.
        stored_bytes: Bytes of all updates that were logged, also of those deleted since.
        observers: Are called with each call that was logged.
    """

    def __init__(self, run: LiveRun, log_writer: LogWriter, segments: Segments, tally: ClientTally) -> None:
        self.update_files = UpdateFiles()
        self.stored_bytes = 0
        self.observers: list[Callable[[RecordedCall], None]] = []
        self._coordinator = run.coordinator
        self._alarm = run.alarm
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
        record = replace(record_of(call, self._log_writer.number + 1), outcome=self._outcome(call))
        self._tally.note(record)
        shown = {name: value for name, value in record.arguments.items() if name != "share"}
        event(call.name, version=self._coordinator.algorithm.version, **shown)
        segment: Segment | None = None
        update = vector_of(call)
        if isinstance(update, StoredUpdate):
            self.stored_bytes += update.size
            self.update_files.add(record.number, update)
            # A small update was appended just before this call; a large one is on disk.
            current = self._segments.current
            segment = current if current is not None and current.path == update.path else None
        self._log_writer.append(record, segment)
        self._alarm.expect(self._coordinator.next_lapse())
        for observe in self.observers:
            observe(call)

    def _outcome(self, call: RecordedCall) -> list[Any] | None:
        """Return what the call's record says beside its arguments, for counts by client."""
        visits = self._coordinator.visits
        if call.name == "receive":
            receipt = visits.receipt(call.arguments["client"], call.arguments["visit"])
            return None if receipt is None else [receipt.counted, receipt.staleness]
        if call.name == "lapse":
            return [client for client in self._tally.working() if not visits.has_slot(client)]
        return None
