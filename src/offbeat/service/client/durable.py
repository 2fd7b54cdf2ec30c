"""Files that are whole or not there, also after a kill or a power cut."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offbeat.errors import OffbeatError


def put_in_place(partial: Path, path: Path) -> None:
    """Rename ``partial`` to ``path`` once its content is on disk; afterwards the new name is on disk too."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(path)
    _sync_folder(path.parent)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a small file that only its owner may read; what stands at ``path`` is always whole."""
    partial = path.with_name(f"{path.name}.partial")
    # A file that was left there would keep its own permissions.
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(value, file)
    put_in_place(partial, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what was written; None if nothing was.

    Raises:
        OffbeatError: It is broken.
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


def remove(path: Path) -> None:
    """Remove a file, if it is there; afterwards that is on disk."""
    path.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
