"""The plain values of a checkpoint, read without PyTorch."""

import json
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from safetensors import SafetensorError, safe_open

# Increment it when the form of a state changes: a checkpoint of another format is refused.
FORMAT = "1"
PLAIN = "plain values"
"""The tensor of bytes that holds the plain values as JSON."""

BROKEN = (OSError, SafetensorError, LookupError, TypeError, ValueError)
"""The errors of a file that is not a whole checkpoint."""


def read_values(path: Path) -> dict[str, Any]:
    """Return the plain values in a checkpoint; tuples become lists."""
    try:
        with safe_open(path, framework="np") as file:
            form = (file.metadata() or {}).get("format")
            if form != FORMAT:
                raise OffbeatError(
                    f"{path} is a checkpoint of format {form}, this version of Offbeat reads format {FORMAT}: "
                    "go on with the version that wrote it, or run again with --fresh"
                )
            return json.loads(bytes(file.get_tensor(PLAIN)))
    except BROKEN:
        raise broken(path) from None


def broken(path: Path) -> OffbeatError:
    """Return the error for a file that is not a whole checkpoint."""
    return OffbeatError(f"{path} is broken: run again with --fresh")
