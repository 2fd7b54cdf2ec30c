"""The facts of a start for the audit log."""

import math
from importlib import metadata
from typing import Any

from offbeat.service.server_settings import ServerSettings, ServiceSettings


def start_facts(settings: ServerSettings) -> dict[str, Any]:
    """Return the version of Offbeat and all settings.

    ``config`` has those that are fixed, ``settings`` those that may change between starts.
    """
    names = set(ServiceSettings.model_fields) - ServiceSettings.fixed()
    changeable = settings.service.model_dump(include=names) | {
        "hosts": list(settings.service.hosts),
        "tls": settings.certificates is not None,
        "evaluate_every": settings.evaluate_every,
        "evaluate_on_clients": settings.evaluate_on_clients,
    }
    return {
        "version": metadata.version("offbeat"),
        "config": _in_json(settings.config),
        "settings": _in_json(changeable),
    }


def _in_json(value: Any) -> Any:
    """Return a value with texts in place of numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _in_json(one) for name, one in value.items()}
    return [_in_json(one) for one in value] if isinstance(value, list) else value
