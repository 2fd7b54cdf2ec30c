"""The coordinator's calls as plain values, for the log, and back."""

import errno
import hashlib
from pathlib import Path
from typing import Any

from torch import Tensor

from offbeat.coordinator import Coordinator
from offbeat.coordinator.calls import Call
from offbeat.errors import OffbeatError
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.store.store import Record
from offbeat.service.updates.update_body import StoredUpdate

NOT_LOGGED = frozenset({"present", "absent"})
"""After a restart nobody is there before they check in; and an assignment says who was picked."""

_CHUNK = 2**20  # bytes that are read at once

# What is elsewhere: in a file, or with the visit.
_LEFT_OUT = frozenset({"vector", "base"})


class DiscardedUpdate:
    """The vector of an update that does not count, which is not stored; a ``Promise`` that is never kept."""

    def resolve(self) -> Tensor:
        """Raise ``AssertionError``: an algorithm looks at counted updates only."""
        raise AssertionError("the update does not count, so it was not stored")


def arguments_of(call: Call) -> dict[str, Any]:
    """Return a call's arguments as plain values; an update's vector and base are left out."""
    return {name: value for name, value in call.arguments.items() if name not in _LEFT_OUT}


def call_of(record: Record, coordinator: Coordinator, updates: Path, models: ModelFiles) -> Call:
    """Return the call that a record of the log stands for, on a coordinator in the state that it was in then.

    Raises:
        OffbeatError: The update's bytes are not there, or are not those that were logged.
    """
    if record.name != "receive":
        return Call(record.name, record.arguments)
    assignment = coordinator.assignment(record.arguments["client"])
    assert assignment is not None, "only a visit that is not over is recorded"
    base = models.read(assignment.version) if coordinator.algorithm.needs_base else None
    if record.file is None:
        return Call("receive", {**record.arguments, "vector": DiscardedUpdate(), "base": base})
    assert record.offset is not None
    assert record.size is not None
    vector = StoredUpdate(updates / record.file, record.offset, record.size, models.length, assignment.plan.compression)
    _check_digest(vector, record)
    return Call("receive", {**record.arguments, "vector": vector, "base": base})


def _check_digest(update: StoredUpdate, record: Record) -> None:
    digest = hashlib.sha256()
    try:
        for begin in range(0, update.size, _CHUNK):
            digest.update(update.read(begin, min(_CHUNK, update.size - begin)))
    except OSError as error:
        if error.errno not in (None, errno.ENOENT):
            raise
    if digest.hexdigest() != record.digest:
        raise OffbeatError(
            f"{update.path} is broken: it does not hold the update of the log's record {record.number}; "
            "restore a backup"
        )
