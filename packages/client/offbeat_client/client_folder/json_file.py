"""Small JSON files that only their owner may read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably

_Saved = TypeVar("_Saved")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the content of ``path``, on disk."""
    write_durably(path, json.dumps(value).encode(), mode=0o600)


def read_json(path: Path, kind: Callable[..., _Saved], advice: str = "remove it") -> _Saved | None:
    """Return the JSON object in a file as ``kind``; None if the file does not exist.

    The error about a broken file ends with the advice.
    """
    try:
        return kind(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError):
        raise OffbeatError(f"{path} is broken: {advice}") from None
