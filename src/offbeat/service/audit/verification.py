"""The check of a folder's audit log."""

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.service.audit.log_head import LogHead
from offbeat.service.store.read_only import open_read_only


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a folder's audit log, without a check of the chain."""
    for number, text, _ in _rows(folder):
        try:
            entry = json.loads(text)
        except (TypeError, ValueError):
            entry = None
        if not isinstance(entry, dict):
            raise OffbeatError(f"entry {number} of the audit log in {folder} was changed: it is not JSON")
        yield entry


def verify(folder: Path, heads: Sequence[LogHead] = ()) -> LogHead:
    """Check a folder's audit log; return its head.

    Args:
        folder: The folder of a server, which may run, or a backup.
        heads: Heads that the server has given out.

    Raises:
        OffbeatError: The chain is broken, or does not contain one of the heads.
    """
    wanted = sorted(heads, key=lambda head: head.number, reverse=True)
    head = LogHead()
    for number, text, digest in _rows(folder):
        if number != head.number + 1:
            raise OffbeatError(f"the audit log in {folder} was changed: entry {head.number + 1} was removed")
        head = head.after(text) if isinstance(text, str) else head
        if digest != head.digest:
            raise OffbeatError(f"the audit log in {folder} was changed: entry {number} does not fit those before it")
        while wanted and wanted[-1].number <= number:
            if (given := wanted.pop()) != head:
                raise OffbeatError(
                    f"the audit log in {folder} was written anew: its entry {number} is not that of the head {given}"
                )
    if not head.number:
        raise OffbeatError(f"the audit log in {folder} has no entries, but every start of a server makes one")
    if wanted:
        raise OffbeatError(
            f"the audit log in {folder} was cut: it ends at entry {head.number}, before the head {wanted[0]}"
        )
    return head


def read_heads(path: Path) -> list[LogHead]:
    """Return the heads in a client's file ``audit-heads``.

    A kill may have left part of a line, which is left out.
    """
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}") from None
    heads = [LogHead.parse(found) for found in re.findall(r"^[0-9]{1,18}:[0-9a-f]{64}$", text, re.MULTILINE)]
    if not heads:
        raise OffbeatError(f"{path} does not hold a head: name the file audit-heads in a client's folder")
    return heads


def _rows(folder: Path) -> Iterator[tuple[int, Any, Any]]:
    path = folder / "offbeat.sqlite"
    if not path.exists():
        raise OffbeatError(f"{folder} is not a server's folder: it does not hold offbeat.sqlite")
    try:
        with closing(open_read_only(path)) as database:
            yield from database.execute("SELECT number, entry, digest FROM audit ORDER BY number")
    except sqlite3.Error as error:
        raise OffbeatError(f"cannot read {path}: {error}") from None
