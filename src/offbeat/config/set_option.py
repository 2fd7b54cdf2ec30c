"""The option ``--set``: files with changes from the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_table


def read_changed(
    path: Path, changes: Sequence[str] = (), alternatives: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return a TOML file as an unchecked table, with changes.

    Args:
        path: The file.
        changes: As for ``--set``: ``section.key=value``.
        alternatives: By ``section.key``, another key of the section that goes when a change sets this one.
    """
    table = read_table(path)
    for change in changes:
        _change(table, change, alternatives)
    return table


def _change(table: dict[str, Any], change: str, alternatives: Mapping[str, str]) -> None:
    key, equals, text = change.partition("=")
    *parents, last = key.strip().split(".")
    if not equals or not all((*parents, last)):
        raise OffbeatError(f"--set {change}: write it as section.key=value, for instance local.lr=0.1")
    for parent in parents:
        below: Any = table.setdefault(parent, {})
        if not isinstance(below, dict):
            raise OffbeatError(f"--set {change}: {parent} is a value, not a section")
        table = below
    table.pop(alternatives.get(".".join([*parents[-1:], last]), ""), None)
    if "\n" in text:
        raise OffbeatError(f"--set {key}: the value must be one line")
    try:
        table[last] = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        table[last] = text.strip()
