"""An app's settings: ``run_config`` and ``node_config`` of its context."""

# pyright: reportMissingImports=false

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.common.config import flatten_dict, parse_config_args
from offbeat_core.errors import OffbeatError, did_you_mean

_SETTING = re.compile(r"""\S+?=('[^']*'|"[^"]*"|\S+)""")  # as Flower finds them; it ignores the rest of a text


def read_run_config(folder: Path, changes: str | None) -> dict[str, Any]:
    """Return the settings in ``[tool.flwr.app.config]`` of a folder, with changes.

    Args:
        folder: The folder with the app's ``pyproject.toml``, if it has one.
        changes: Changes as for ``flwr run --run-config``; None for none.

    Raises:
        OffbeatError: The file is not TOML, or a change is of a setting that it does not have.
    """
    path = folder / "pyproject.toml"
    settings = _settings(path) if path.is_file() else None
    changed = read_config(changes)
    if settings is None:
        return changed
    for name in changed:
        if name not in settings:
            raise OffbeatError(f"--run-config {name}: {path} has no such setting: {did_you_mean(name, settings)}")
    return settings | changed


def read_config(text: str | None) -> dict[str, Any]:
    """Return settings that are written like ``a=1 b="two"``, or in a TOML file."""
    try:
        if text is not None and not text.endswith(".toml") and (rest := _SETTING.sub("", text).split()):
            raise ValueError(f"{' '.join(rest)!r} is not NAME=VALUE")
        return dict(parse_config_args(None if text is None else [text]))
    except (OSError, ValueError) as error:
        raise OffbeatError(f"the settings {text!r} cannot be read: {error}: write them as 'a=1 b=\"two\"'") from None


def _settings(path: Path) -> dict[str, Any] | None:
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        for name in ("tool", "flwr", "app", "config"):
            table = table.get(name) if isinstance(table, Mapping) else None
        return None if table is None else dict(flatten_dict(table))
    except (OSError, ValueError) as error:
        raise OffbeatError(f"{path} cannot be read: {error}") from None
