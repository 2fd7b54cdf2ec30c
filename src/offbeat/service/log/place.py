"""Rows that say in which database a log is, and that it has left for another one.

A database that is not that of the last row may lack rows that were acknowledged: it was restored from a backup, or a
replica that had not received them has become the primary. So nobody leads a log there until an operator accepts it.
"""

from collections.abc import Mapping
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.service.log.log import Change, Row

OWNER = "place"
_FOUND, _LEFT = "found", "left"


def found(place: Mapping[str, Any]) -> Change:
    """Return the change of a leader that has found its log in a database."""
    return Change(OWNER, _FOUND, dict(place))


def left(target: str) -> Change:
    """Return the change of a log that continues elsewhere."""
    return Change(OWNER, _LEFT, {"to": target})


def target_of(row: Row | None) -> str | None:
    """Return where a log has moved, from its last row of a place; None if it has not."""
    return row.values["to"] if row is not None and row.name == _LEFT else None


def check_place(row: Row | None, place: Mapping[str, Any] | None) -> None:
    """Raise ``OffbeatError`` if the log has left, or lies in another database.

    Args:
        row: The log's last row of a place.
        place: The database; None if it does not tell.
    """
    if (target := target_of(row)) is not None:
        raise OffbeatError(
            f"the run was moved to {target}: start it there; if the move was interrupted, run the same "
            "offbeat server move again"
        )
    if is_elsewhere(row, place):
        assert row is not None
        before, now = (f"system {each['system']}, timeline {each['timeline']}" for each in (row.values, place or {}))
        raise OffbeatError(
            f"the log's database was restored, or failed over to a replica, since epoch {row.epoch} ({before}; now "
            f"{now}), so acknowledged updates may be missing: if the replica was synchronous, or to go on without "
            "them, run offbeat server accept SERVER.toml"
        )


def is_elsewhere(row: Row | None, place: Mapping[str, Any] | None) -> bool:
    """Return whether a log's last row of a place names another database."""
    return row is not None and place is not None and row.name == _FOUND and row.values != place
