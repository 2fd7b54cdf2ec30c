"""Small JSON files that only their owner may read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offbeat_client.errors import OffbeatError
from offbeat_client.files import write_durably


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the content of ``path``, on disk."""
    write_durably(path, json.dumps(value).encode(), mode=0o600)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if the file does not exist.

    Raises:
        OffbeatError: The file is broken.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OffbeatError(f"{path} is broken: take another folder, and enrol again")
    return value
