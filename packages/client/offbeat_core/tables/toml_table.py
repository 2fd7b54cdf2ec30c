"""TOML files as unchecked tables, with changes from the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_text


def read_table(
    path: Path, overrides: Sequence[str] = (), alternatives: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return a TOML file as an unchecked table.

    Args:
        path: The file.
        overrides: As for ``--set``.
        alternatives: By ``section.key``, another key of the section that goes when an override sets this one.
    """
    try:
        table = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise OffbeatError(f"no such file: {path}") from None
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OffbeatError(f"cannot read {path}: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, or thousands of brackets
        raise OffbeatError(f"{path} is not valid TOML: {error}") from None
    for override in overrides:
        _override(table, override, alternatives)
    return table


def _override(table: dict[str, Any], override: str, alternatives: Mapping[str, str]) -> None:
    key, equals, text = override.partition("=")
    *parents, last = key.strip().split(".")
    if not equals or not all((*parents, last)):
        raise OffbeatError(f"--set {override}: write it as section.key=value, for instance local.lr=0.1")
    for parent in parents:
        below: Any = table.setdefault(parent, {})
        if not isinstance(below, dict):
            raise OffbeatError(f"--set {override}: {parent} is a value, not a section")
        table = below
    table.pop(alternatives.get(".".join([*parents[-1:], last]), ""), None)
    if "\n" in text:
        raise OffbeatError(f"--set {key}: the value must be one line")
    try:
        table[last] = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        table[last] = text.strip()
