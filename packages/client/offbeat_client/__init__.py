"""The client of an Offbeat server: enrols, trains with the user's code, uploads.

Needs neither torch nor the package ``offbeat``; models are numpy arrays by parameter name. ``run`` and
``run_client`` resume after a kill or a broken connection.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offbeat_client.client_run import run, run_client
    from offbeat_client.http.connection import Backoff
    from offbeat_client.visit import Client, Evaluate, Fit, Fitted, Visit
    from offbeat_core.errors import GiveUpError, OffbeatError

__all__ = [
    "Backoff",
    "Client",
    "Evaluate",
    "Fit",
    "Fitted",
    "GiveUpError",
    "OffbeatError",
    "Visit",
    "run",
    "run_client",
]

_MODULES = {
    "Backoff": "offbeat_client.http.connection",
    "Client": "offbeat_client.visit",
    "Evaluate": "offbeat_client.visit",
    "Fit": "offbeat_client.visit",
    "Fitted": "offbeat_client.visit",
    "GiveUpError": "offbeat_core.errors",
    "OffbeatError": "offbeat_core.errors",
    "Visit": "offbeat_client.visit",
    "run": "offbeat_client.client_run",
    "run_client": "offbeat_client.client_run",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: the simulator needs plans and compressors, but no HTTP.
    if name not in _MODULES:
        raise AttributeError(f"module 'offbeat_client' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)
