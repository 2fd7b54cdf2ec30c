"""Conditions for resuming a run: same settings, same versions, all chunks."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from offbeat_core.errors import OffbeatError

from offbeat.runs.parquet_chunks import chunk_paths


def has_settings(path: Path, config: Mapping[str, Any]) -> bool:
    """Return whether the folder holds a run with these settings."""
    settings = _settings(path)
    return settings is not None and _as_text(settings) == _as_text(tomllib.loads(tomli_w.dumps(config)))


def _as_text(settings: Mapping[str, Any]) -> str:
    # As text, in which nan equals nan.
    return json.dumps(settings, sort_keys=True, default=str)


def check_settings(path: Path, config: Mapping[str, Any]) -> None:
    """Raise ``OffbeatError`` if the folder holds a run with other settings."""
    if _settings(path) is not None and not has_settings(path, config):
        raise OffbeatError(
            f"{path} holds a run with other settings: choose another folder with --output, or replace it with --fresh"
        )


def _settings(path: Path) -> dict[str, Any] | None:
    try:
        return tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def check_versions(folder: Path, versions: Mapping[str, str]) -> None:
    """Raise ``OffbeatError`` with the first difference if a run was begun with others."""
    try:
        begun: dict[str, str] = dict(json.loads((folder / "versions.json").read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        raise OffbeatError(f"{folder / 'versions.json'} cannot be read: run again with --fresh") from None
    for name, version in versions.items():
        is_file = Path(name).is_absolute()
        # An unknown file belongs to another run, for instance to an algorithm that was added to the comparison.
        if begun.get(name) == version or ((is_file or name == "kernel") and name not in begun):
            continue
        if name == "data" or is_file:
            changed = "the return value of data.name" if name == "data" else name
            raise OffbeatError(
                f"{changed} has changed since {folder} was begun, so the numbers may differ: restore it, choose "
                "another folder with --output, or run again with --fresh"
            )
        raise OffbeatError(
            f"{folder} was begun with {name} {begun.get(name)}, but {name} is now {version}, so the numbers may "
            f"differ: use {name} {begun.get(name)}, choose another folder with --output, or run again with --fresh"
        )


def check_chunks(folder: Path, state: Mapping[str, Any], tables: Sequence[str]) -> None:
    """Raise ``OffbeatError`` unless all chunks exist that a run's checkpoint counts.

    ``tables`` are the names of the run's tables.
    """
    chunks: Any = state.get("parts")
    is_list = isinstance(chunks, list) and [type(number) for number in chunks] == [int] * len(tables)
    if not is_list or not isinstance(state.get("real_seconds"), float):
        raise OffbeatError(f"{folder / 'checkpoint.safetensors'} is broken: run again with --fresh")
    for name, number in zip(tables, chunks, strict=True):
        if len(chunk_paths(folder, name)) < number:
            raise OffbeatError(f"{folder} lacks a part of its {name}: run again with --fresh")
