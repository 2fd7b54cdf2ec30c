"""Conversion between the coordinator's calls and the log's records."""

import base64
import errno
import hashlib
from dataclasses import dataclass
from pathlib import Path

from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.algorithms.components import Compression
from offbeat.coordinator import Coordinator, RecordedCall
from offbeat.service.store.database import LogRecord
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.update_body import StoredUpdate

_CHUNK = 2**20  # bytes read at once
_VECTORS = ("vector", "opened")  # an update's, or an opened sum's
_NOT_IN_ARGUMENTS = frozenset({*_VECTORS, "base"})  # in the update's file, and in models/


@dataclass(frozen=True, slots=True)
class DiscardedUpdate:
    """A ``Promise`` in place of an update that does not count and is not stored."""

    digest: str

    def resolve(self) -> Tensor:
        """Raise ``AssertionError``: an algorithm reads counted updates only."""
        raise AssertionError("the update does not count, so it was not stored")


def record_of(call: RecordedCall, number: int) -> LogRecord:
    """Return the record of a call, whose update is stored or discarded."""
    arguments = {name: value for name, value in call.arguments.items() if name not in _NOT_IN_ARGUMENTS}
    if isinstance(arguments.get("share"), bytes):
        arguments["share"] = base64.b64encode(arguments["share"]).decode()
    match vector_of(call):
        case StoredUpdate() as update:
            return LogRecord(number, call.name, arguments, update.path.name, update.offset, update.size, update.digest)
        case DiscardedUpdate() as update:
            return LogRecord(number, call.name, arguments, digest=update.digest)
        case _:
            return LogRecord(number, call.name, arguments)


def vector_of(call: RecordedCall) -> object:
    """Return the update or the opened sum of a call; None if it has neither."""
    return next((call.arguments[name] for name in _VECTORS if name in call.arguments), None)


def call_of(record: LogRecord, coordinator: Coordinator, updates: Path, models: ModelFiles) -> RecordedCall:
    """Return the call of a record, for a coordinator in the state before it."""
    if record.name == "reveal":
        opened = _stored(record, updates, models.length, None, is_masked=True)
        return RecordedCall("reveal", {**record.arguments, "opened": opened})
    if record.name != "receive":
        return RecordedCall(record.name, record.arguments)
    assignment = coordinator.visits.assignment(record.arguments["client"])
    assert assignment is not None, "only the update of an open visit is logged"
    base = models.read(assignment.version) if coordinator.algorithm.needs_base else None
    arguments = {**record.arguments, "base": base}
    if (share := record.arguments.get("share")) is not None:
        arguments["share"] = base64.b64decode(share)
    if record.file is None:
        return RecordedCall("receive", {**arguments, "vector": DiscardedUpdate(record.digest or "")})
    compression = assignment.plan.compression
    update = _stored(record, updates, models.length, compression, is_masked=share is not None)
    return RecordedCall("receive", {**arguments, "vector": update})


def _stored(
    record: LogRecord, updates: Path, length: int, compression: Compression | None, *, is_masked: bool
) -> StoredUpdate:
    assert record.file is not None
    assert record.offset is not None
    assert record.size is not None
    path, digest = updates / record.file, record.digest or ""
    update = StoredUpdate(path, record.offset, record.size, length, compression, digest, is_masked)
    _check_digest(update, record.number)
    return update


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
