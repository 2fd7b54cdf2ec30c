"""Strict JSON from the network: one object, without repeated keys or deep nesting."""

import json
from typing import Any


def read_object(text: str) -> dict[str, Any]:
    """Read one JSON object.

    Raises:
        ValueError: The text is not one, repeats a key, or is nested too deeply.
    """
    try:
        values = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is repeated")
    return values


def shortened(text: str) -> str:
    """Return the beginning of a text, for one line of an error."""
    return ascii(text)[:40]
