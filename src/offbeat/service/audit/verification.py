"""The audit log's hash chain, and the check of a folder's."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from offbeat_core.errors import OffbeatError

from offbeat.service.store.database import RARE, opened

Rows = Iterator[tuple[Any, Any]]
"""Entries of an audit log in order, each with the head behind it."""


@dataclass(frozen=True, slots=True)
class LogHead:
    """The end of a chain: its number of entries, and the last digest.

    A digest is SHA-256 of the digest before it, as 32 bytes, and the entry's text. Before the first entry there are 32
    zero bytes.
    """

    number: int = 0
    digest: str = "0" * 64

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the head of a text such as ``17:3f…``."""
        if not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{64}", text, re.ASCII):
            raise OffbeatError(
                f"{text[:100]!r} is not a head: write NUMBER:DIGEST, as offbeat server audit verify does"
            )
        number, _, digest = text.partition(":")
        return cls(int(number), digest)

    def after(self, entry: str) -> Self:
        """Return the head of the chain with one more entry."""
        digest = hashlib.sha256(bytes.fromhex(self.digest) + entry.encode()).hexdigest()
        return type(self)(self.number + 1, digest)


def entry_text(number: int, at: str, kind: str, facts: dict[str, Any]) -> str:
    """Return an entry's text: ASCII, one line of JSON."""
    return json.dumps({"number": number, "at": at, "kind": kind, **facts}, allow_nan=False)


def entries(folder: Path, rows: Rows | None = None) -> Iterator[dict[str, Any]]:
    """Yield the entries of an audit log, without a check of the chain.

    ``rows`` are those of a log that is not in the folder.
    """
    for number, (text, _) in enumerate(rows or _rows(folder), start=1):
        try:
            entry = json.loads(text)
        except (TypeError, ValueError):
            entry = None
        if not isinstance(entry, dict):
            raise OffbeatError(f"entry {number} of the audit log in {folder} was changed: it is not JSON")
        yield entry


def verify(folder: Path, heads: Sequence[LogHead] = (), rows: Rows | None = None) -> LogHead:
    """Check the audit log of a server or a backup; return its head.

    ``rows`` are those of a log that is not in the folder.

    Raises:
        OffbeatError: The chain is broken, or does not contain one of the ``heads`` that the server has given out.
    """
    wanted = sorted(heads, key=lambda head: head.number, reverse=True)
    head = LogHead()
    for number, (text, digest) in enumerate(rows or _rows(folder), start=1):
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
    """Return the complete heads in a client's file ``audit-heads``."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}") from None
    heads = [LogHead.parse(found) for found in re.findall(r"^[0-9]{1,18}:[0-9a-f]{64}$", text, re.MULTILINE)]
    if not heads:
        raise OffbeatError(f"{path} does not hold a head: name the file audit-heads in a client's folder")
    return heads


def _rows(folder: Path) -> Rows:
    try:
        with opened(folder) as database:
            query = f"SELECT entry, head FROM log WHERE {RARE} AND head IS NOT NULL ORDER BY number"
            yield from database.execute(query)
    except sqlite3.Error as error:
        raise OffbeatError(f"cannot read {folder / 'offbeat.sqlite'}: {error}") from None
