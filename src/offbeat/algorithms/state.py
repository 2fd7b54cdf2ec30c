"""Flat state dicts from parts, and parts from flat state dicts."""

from typing import Any


def prefixed(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return ``state`` with every key written as ``prefix.key``."""
    return {f"{prefix}.{key}": value for key, value in state.items()}


def under(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the part of ``state`` whose keys begin with ``prefix.``, without the prefix."""
    return {key.removeprefix(f"{prefix}."): value for key, value in state.items() if key.startswith(f"{prefix}.")}
