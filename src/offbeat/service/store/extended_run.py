"""A run whose end an admin may move: its keys in ``meta``, and configurations."""

import math
from collections.abc import Mapping
from typing import Any

PAUSED = "paused"
"""Whether the run is paused, "1" or "0"."""

EXTENDED_FROM = "extended_from"
"""The version at which the run ended before its file was changed, until a server has started since."""

STOP_VERSIONS = "stop_versions"
"""The version at which the run ends, if an admin has extended it."""


def stop_versions(config: Mapping[str, Any]) -> float:
    """Return the version at which a run of this configuration ends."""
    return config.get("stop", {}).get("versions", math.inf)


def without_versions(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without ``stop.versions``."""
    stop = {key: value for key, value in config.get("stop", {}).items() if key != "versions"}
    return {**config, "stop": stop}


def is_extended(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a configuration differs from an earlier one by a later end only."""
    return without_versions(before) == without_versions(after) and stop_versions(before) < stop_versions(after)
