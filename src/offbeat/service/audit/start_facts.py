"""The facts of a start for the audit log."""

import math
from importlib import metadata
from typing import Any

from offbeat.service.settings import ServerSettings

_CHANGEABLE = (
    "host",
    "port",
    "hosts",
    "connections_per_address",
    "token_seconds",
    "checkpoint_seconds",
    "max_update_norm",
    "max_examples",
    "requests_a_second",
    "burst",
    "evaluate_every",
    "evaluate_on_clients",
)
"""The settings that may differ from start to start; those of ``ServerSettings.config`` may not."""


def start_facts(settings: ServerSettings) -> dict[str, Any]:
    """Return the version of Offbeat and the server's configuration."""
    changeable = {name: getattr(settings, name) for name in _CHANGEABLE}
    service = changeable | {"hosts": list(settings.hosts), "tls": settings.certificates is not None}
    return {"version": metadata.version("offbeat"), "config": _in_json(settings.config), "settings": _in_json(service)}


def _in_json(value: Any) -> Any:
    """Return a value with texts in place of numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _in_json(one) for name, one in value.items()}
    return [_in_json(one) for one in value] if isinstance(value, list) else value
