"""Conversion between the coordinator's calls and the log's rows."""

import base64
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from offbeat_core.digests import digest_of_file, kind_of, named_digest, new_digest
from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.algorithms.components import Compression
from offbeat.coordinator import Coordinator, RecordedCall
from offbeat.service.log.log import COORDINATOR, Change, Row
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.updates.update_body import BufferedUpdate, StoredUpdate

_VECTORS = ("vector", "opened")  # an update's, or an opened sum's
_SENT = frozenset({"receive", "note_speed", "note_steps"})  # calls with what a client has sent
_TALLIED = frozenset({"now", "client", "visit", "outcome"})
_NOT_IN_ARGUMENTS = frozenset({*_VECTORS, "base"})  # in the update's file, and in models/


class Belongings(TypedDict, total=False):
    """The columns of a row that belong to an update; see ``Row``."""

    digest: str
    blob: str
    body: bytes


@dataclass(frozen=True, slots=True)
class DiscardedUpdate:
    """A ``Promise`` in place of an update that does not count and is not stored."""

    digest: str

    def resolve(self) -> Tensor:
        """Raise ``AssertionError``: an algorithm reads counted updates only."""
        raise AssertionError("the update does not count, so it was not stored")


class UpdateFolder:
    """The folder of large updates; missing ones are taken from ``shared`` files."""

    def __init__(self, path: Path, shared: SharedFiles | None = None) -> None:
        self._path = path
        self._shared = shared

    def fetch(self, name: str, digest: str) -> Path:
        """Return the file of an update; it may be missing or broken if none is shared."""
        path = self._path / name
        if self._shared is not None:
            self._shared.download(f"updates/{name}", digest, path)
        return path


def entry_of(call: RecordedCall, outcome: list[Any] | None) -> tuple[Change, Belongings]:
    """Return what the log's row of a call holds.

    ``outcome`` is for counts by client: of ``receive`` whether the update counted and its staleness, of ``lapse`` the
    clients whose visits were lost. Other calls do not have one.
    """
    arguments = {name: value for name, value in call.arguments.items() if name not in _NOT_IN_ARGUMENTS}
    if isinstance(arguments.get("share"), bytes):
        arguments["share"] = base64.b64encode(arguments["share"]).decode()
    if outcome is not None:
        arguments["outcome"] = outcome
    belongings: Belongings = {}
    match vector_of(call):
        case StoredUpdate() as update:
            belongings = {"blob": update.path.name, "digest": update.digest}
        case BufferedUpdate() as update:
            # Of bytes this is not a copy: an algorithm that changes its vector has a copy of its own.
            belongings = {"body": bytes(update.data), "digest": update.digest}
        case DiscardedUpdate() as update:
            belongings = {"digest": update.digest}
        case _:
            pass
    return Change(COORDINATOR, call.name, arguments), belongings


def redacted(row: Row) -> Row | None:
    """Return a call's row without what its client sent; None if that is nothing.

    Only what a tally needs is left, so it cannot be replayed.
    """
    if row.name not in _SENT:
        return None
    values = {name: value for name, value in row.values.items() if name in _TALLIED}
    return replace(row, arguments=json.dumps(values, separators=(",", ":")), digest=None, blob=None)


def vector_of(call: RecordedCall) -> object:
    """Return the update or the opened sum of a call; None if it has neither."""
    return next((call.arguments[name] for name in _VECTORS if name in call.arguments), None)


def call_of(row: Row, coordinator: Coordinator, folder: UpdateFolder, models: ModelFiles) -> RecordedCall:
    """Return the call of a row, for a coordinator in the state before it."""
    arguments = row.values
    outcome = arguments.pop("outcome", None)
    if row.name == "reveal":
        opened = _stored(row, folder, models.length, None, is_masked=True)
        return RecordedCall("reveal", {**arguments, "opened": opened})
    if row.name != "receive":
        return RecordedCall(row.name, arguments)
    assignment = coordinator.visits.assignment(arguments["client"])
    assert assignment is not None, "only the update of an open visit is logged"
    arguments["base"] = models.read(assignment.version) if coordinator.algorithm.needs_base else None
    is_masked = arguments.get("share") is not None
    if is_masked:
        arguments["share"] = base64.b64decode(arguments["share"])
    if outcome[0]:
        compression = assignment.plan.compression
        return RecordedCall(
            "receive", {**arguments, "vector": _stored(row, folder, models.length, compression, is_masked=is_masked)}
        )
    return RecordedCall("receive", {**arguments, "vector": DiscardedUpdate(row.digest or "")})


def _stored(
    row: Row, folder: UpdateFolder, length: int, compression: Compression | None, *, is_masked: bool
) -> StoredUpdate | BufferedUpdate:
    digest = row.digest or ""
    if row.body is not None:
        kind = kind_of(digest)
        _check_digest(named_digest(kind, new_digest(kind)(row.body).hexdigest()), row, "the log")
        return BufferedUpdate(row.body, length, compression, digest, is_masked)
    if row.blob is None:
        raise OffbeatError(
            f"the log no longer holds the update of row {row.number}: start this server again, or restore a backup"
        )
    path, found, size = folder.fetch(row.blob, digest), "", 0
    with suppress(FileNotFoundError):
        found, size = digest_of_file(path, kind_of(digest)), path.stat().st_size
    _check_digest(found, row, str(path))
    return StoredUpdate(path, size, length, compression, digest, is_masked)


def _check_digest(found: str, row: Row, place: str) -> None:
    if found != row.digest:
        raise OffbeatError(f"{place} is broken: it does not hold the update of row {row.number}; restore a backup")
