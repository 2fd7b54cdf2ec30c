"""JSON from the network: one object, no key twice, not nested too deeply."""

import json
from typing import Any


def read_object(text: str) -> dict[str, Any]:
    """Read one JSON object; a ``ValueError`` for anything else, repeated keys and deep nesting included."""
    try:
        values = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("no object")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is there twice")
    return values


def shortened(text: str) -> str:
    """Return a text so that it fits into one line of an error."""
    return ascii(text)[:40]
