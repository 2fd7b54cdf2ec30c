"""Logging of the coordinator's calls, and the files of their large updates."""

import logging
import weakref
from pathlib import Path
from typing import Any

from offbeat_core.serving.console_log import event

from offbeat.coordinator import RecordedCall
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.store.call_records import entry_of, vector_of
from offbeat.service.store.client_tally import ClientTally
from offbeat.service.updates.update_body import BufferedUpdate, StoredUpdate

# After a restart no client is available before it checks in, and the row of an assignment names the clients.
_NOT_LOGGED = frozenset({"present", "absent"})


class CallRecorder:
    """Turns each call of the run's coordinator into a row of the log.

    The run's history and ``tally`` follow the log.

    Attributes:
        update_files: The files of large updates that are needed.
        silent: Clients whose leases have lapsed since the log's last line about the progress.
        stored_bytes: Bytes of all updates that were logged, also of those deleted since.
    """

    def __init__(self, run: LiveRun, log_writer: LogWriter, tally: ClientTally) -> None:
        self.update_files = UpdateFiles()
        self.silent: set[int] = set()
        self.stored_bytes = 0
        self._run = run
        self._log_writer = log_writer
        self._tally = tally
        run.coordinator.record = self._record

    def _record(self, call: RecordedCall) -> None:
        if call.name in _NOT_LOGGED:
            return
        coordinator = self._run.coordinator
        outcome = self._outcome(call)
        change, belongings = entry_of(call, outcome)
        if call.name == "lapse":
            self.silent.update(outcome or ())
        self._tally.note(call.name, change.arguments)
        shown = {name: value for name, value in change.arguments.items() if name not in ("share", "outcome")}
        event(call.name, logging.DEBUG, version=coordinator.algorithm.version, **shown)
        self._log_writer.enter(change, **belongings)
        update = vector_of(call)
        if isinstance(update, BufferedUpdate | StoredUpdate):
            self.stored_bytes += update.size
        if isinstance(update, StoredUpdate):
            self.update_files.add(self._log_writer.number, update)
        self._run.alarm.expect(coordinator.next_lapse())
        self._run.history.note(call, coordinator)

    def _outcome(self, call: RecordedCall) -> list[Any] | None:
        """Return what the call's row says beside its arguments, for counts by client."""
        visits = self._run.coordinator.visits
        if call.name == "receive":
            receipt = visits.receipt(call.arguments["client"], call.arguments["visit"])
            return None if receipt is None else [receipt.counted, receipt.staleness]
        if call.name == "lapse":
            return [client for client in self._tally.working() if not visits.has_slot(client)]
        return None


class UpdateFiles:
    """The files of updates, each with its last row and its updates in memory."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[int, list[weakref.ref[StoredUpdate]]]] = {}

    def __contains__(self, path: Path) -> bool:
        """Return whether a file is still referred to."""
        return path in self._files

    def names(self) -> set[str]:
        """Return the names of the files."""
        return {path.name for path in self._files}

    def add(self, number: int, update: StoredUpdate) -> None:
        """Keep an update's file while row ``number`` or an object needs it."""
        last, references = self._files.get(update.path, (0, []))
        references.append(weakref.ref(update))
        self._files[update.path] = (max(last, number), references)

    def forget(self, number: int) -> list[Path]:
        """Forget and return the files that only rows up to ``number`` need."""
        unused: list[Path] = []
        for path, (last, references) in list(self._files.items()):
            alive = [reference for reference in references if reference() is not None]
            self._files[path] = (last, alive)
            if last <= number and not alive:
                unused.append(path)
                del self._files[path]
        return unused
