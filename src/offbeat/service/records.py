"""The coordinator's calls as plain values, for the log, and back."""

from pathlib import Path
from typing import Any

from offbeat.coordinator import Coordinator
from offbeat.coordinator_records import Call
from offbeat.service.model_files import ModelFiles
from offbeat.service.store import Record
from offbeat.service.update_format import StoredUpdate

NOT_LOGGED = frozenset({"present", "absent"})
"""After a restart nobody is there before they check in; and an assignment says who was picked."""

# What is elsewhere: in a file, or with the visit.
_LEFT_OUT = frozenset({"vector", "base"})


def arguments_of(call: Call) -> dict[str, Any]:
    """Return a call's arguments as plain values; an update's vector and base are left out."""
    return {name: value for name, value in call.arguments.items() if name not in _LEFT_OUT}


def call_of(record: Record, coordinator: Coordinator, updates: Path, models: ModelFiles) -> Call:
    """Return the call that a record of the log stands for, on a coordinator in the state that it was in then."""
    if record.name != "receive":
        return Call(record.name, record.arguments)
    assignment = coordinator.assignment(record.arguments["client"])
    assert assignment is not None, "only a visit that is not over is recorded"
    assert record.file is not None
    assert record.offset is not None
    assert record.size is not None
    vector = StoredUpdate(updates / record.file, record.offset, record.size, models.length, assignment.plan.compression)
    base = models.read(assignment.version) if coordinator.algorithm.needs_base else None
    return Call("receive", {**record.arguments, "vector": vector, "base": base})
