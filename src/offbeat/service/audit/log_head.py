"""The audit log's hash chain."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Self

from offbeat_core.errors import OffbeatError


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
