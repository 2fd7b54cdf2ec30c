"""Logging of the coordinator's calls."""

from collections.abc import Callable

from offbeat.coordinator import Coordinator
from offbeat.coordinator.calls import Call
from offbeat.service.console_log import event
from offbeat.service.store.call_records import record_of, vector_of
from offbeat.service.store.log_writer import LogWriter
from offbeat.service.store.segments import Segment, Segments
from offbeat.service.updates.update_body import StoredUpdate
from offbeat.service.updates.update_files import UpdateFiles

# After a restart no client is available before it checks in, and the record of an assignment names the clients.
_NOT_LOGGED = frozenset({"present", "absent"})


class CallRecorder:
    """Turns each call that the coordinator has carried out into a record of the log.

    Args:
        coordinator: The coordinator; its calls are logged from now on.
        log_writer: Writes the records.
        segments: Hold the small updates, which reach the disk with their records.

    Attributes:
        update_files: The files of updates that are needed.
        stored_bytes: Bytes of all updates that were logged, also of those deleted since.
        observers: Are called with each call that was logged.
    """

    def __init__(self, coordinator: Coordinator, log_writer: LogWriter, segments: Segments) -> None:
        self.update_files = UpdateFiles()
        self.stored_bytes = 0
        self.observers: list[Callable[[Call], None]] = []
        self._coordinator = coordinator
        self._log_writer = log_writer
        self._segments = segments
        coordinator.record = self._record

    def delete_covered(self, number: int) -> None:
        """Delete the files of updates that only records up to ``number`` need."""
        unused = self.update_files.forget(number)
        for path in unused:
            path.unlink(missing_ok=True)
        self._segments.release(unused)

    def _record(self, call: Call) -> None:
        if call.name in _NOT_LOGGED:
            return
        record = record_of(call, self._log_writer.number + 1)
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
        for observe in self.observers:
            observe(call)
