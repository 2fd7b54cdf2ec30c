"""Offbeat: federated learning for clients that come and go."""

import os
from typing import TYPE_CHECKING, Any

# Or the last bits of a matrix product depend on where in memory its rows begin, and so on who else is in a batch. It
# has to be there before the first product of the process.
os.environ.setdefault("MKL_CBWR", "AUTO")

if TYPE_CHECKING:
    from offbeat_core.errors import OffbeatError

    from offbeat.api.history import write_report
    from offbeat.api.simulate import simulate
    from offbeat.data.dataset import Dataset

__all__ = ["Dataset", "OffbeatError", "simulate", "write_report"]

_HOMES = {
    "Dataset": "offbeat.data.dataset",
    "OffbeatError": "offbeat_core.errors",
    "simulate": "offbeat.api.simulate",
    "write_report": "offbeat.api.history",
}


def __getattr__(name: str) -> Any:
    # Not imported before they are used: who needs only the algorithms does not wait for the rest.
    if name not in _HOMES:
        raise AttributeError(f"module 'offbeat' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
