"""Conversion between the coordinator's calls and the log's records."""

import errno
import hashlib
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from offbeat.coordinator import Coordinator
from offbeat.coordinator.calls import Call
from offbeat.errors import OffbeatError
from offbeat.service.store.database import LogRecord
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.update_body import StoredUpdate

_CHUNK = 2**20  # bytes read at once
_NOT_IN_ARGUMENTS = frozenset({"vector", "base"})  # in the update's file, and in models/


@dataclass(frozen=True, slots=True)
class DiscardedUpdate:
    """The vector of an update that does not count and is not stored.

    It is a ``Promise`` that cannot be resolved.
    """

    digest: str

    def resolve(self) -> Tensor:
        """Raise ``AssertionError``: an algorithm reads counted updates only."""
        raise AssertionError("the update does not count, so it was not stored")


def record_of(call: Call, number: int) -> LogRecord:
    """Return the record of a call.

    The call's update, if it has one, is a ``StoredUpdate`` or a ``DiscardedUpdate``.
    """
    arguments = {name: value for name, value in call.arguments.items() if name not in _NOT_IN_ARGUMENTS}
    match call.arguments.get("vector"):
        case StoredUpdate() as update:
            return LogRecord(number, call.name, arguments, update.path.name, update.offset, update.size, update.digest)
        case DiscardedUpdate() as update:
            return LogRecord(number, call.name, arguments, digest=update.digest)
        case _:
            return LogRecord(number, call.name, arguments)


def call_of(record: LogRecord, coordinator: Coordinator, updates: Path, models: ModelFiles) -> Call:
    """Return the call of a record, for a coordinator in the state before that call.

    The update's file is in the folder ``updates``.

    Raises:
        OffbeatError: The update's bytes are missing, or differ from the logged ones.
    """
    if record.name != "receive":
        return Call(record.name, record.arguments)
    assignment = coordinator.visits.assignment(record.arguments["client"])
    assert assignment is not None, "only the update of an open visit is logged"
    base = models.read(assignment.version) if coordinator.algorithm.needs_base else None
    digest = record.digest or ""
    if record.file is None:
        return Call("receive", {**record.arguments, "vector": DiscardedUpdate(digest), "base": base})
    assert record.offset is not None
    assert record.size is not None
    compression = assignment.plan.compression
    update = StoredUpdate(updates / record.file, record.offset, record.size, models.length, compression, digest=digest)
    _check_digest(update, record.number)
    return Call("receive", {**record.arguments, "vector": update, "base": base})


def _check_digest(update: StoredUpdate, number: int) -> None:
    digest = hashlib.sha256()
    try:
        for begin in range(0, update.size, _CHUNK):
            digest.update(update.read(begin, min(_CHUNK, update.size - begin)))
    except OSError as error:
        if error.errno not in (None, errno.ENOENT):
            raise
    if digest.hexdigest() != update.digest:
        raise OffbeatError(
            f"{update.path} is broken: it does not hold the update of the log's record {number}; restore a backup"
        )
