"""Progress of the runs in an experiment's folder, as another process sees it."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.runs import directory as run_directory
from offbeat.sweeps.record import is_sweep, read_record

_UNFINISHED = ".unfinished"
_LIMITS = {"virtual_seconds": "seconds", "versions": "version", "updates": "counted"}  # columns of the history


def progress_of(folder: Path, names: Sequence[str]) -> Mapping[str, Any] | None:
    """Return ``running``, ``done`` runs, ``runs`` and the ``share`` that is done.

    ``names`` are the folders of runs. ``runs`` is None if that is not known. None if all runs are finished.
    """
    finished = {name for name in names if not name.endswith(_UNFINISHED)}
    unfinished = {name.removesuffix(_UNFINISHED) for name in names} - finished
    is_running, planned = _lock(folder)
    runs = len(planned) if planned else None
    done = len(finished & planned) if planned else len(finished)
    if is_sweep(folder):
        try:
            runs, done = read_record(folder)[0].runs, len(finished)
        except OffbeatError:
            runs = None
    if not is_running and not unfinished and (runs is None or done >= runs):
        return None
    shares = sum(_share(folder / f"{name}{_UNFINISHED}") for name in unfinished)
    total = runs if runs is not None else len(finished | unfinished)
    share = min(1.0, (done + shares) / total) if total else 0.0
    return {"running": is_running, "done": done, "runs": runs, "share": round(share, 4)}


def _lock(folder: Path) -> tuple[bool, set[str]]:
    """Return whether a process of this machine writes into a folder, and which runs."""
    is_running, planned = False, set[str]()
    for name in (".lock", ".sweep.lock"):
        try:
            content = json.loads((folder / name).read_bytes())
            is_running = is_running or _is_alive(int(content["process"]))
            planned |= set(map(str, content.get("runs", [])))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return is_running, planned


def _is_alive(process: int) -> bool:
    if process < 1 or os.name == "nt":  # where a signal of number 0 ends a process
        return process >= 1
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _share(folder: Path) -> float:
    """Return the share of an unfinished run that its last checkpoint has."""
    try:
        config, _, _ = run_directory.read_settings(folder)
        history = run_directory.read_history(folder, config)
        if not len(history["seconds"]):
            return 0.0
        ends = ((history[column][-1], config["stop"].get(key)) for key, column in _LIMITS.items())
        return min(1.0, max((float(value) / end for value, end in ends if end), default=0.0))
    except (OffbeatError, KeyError):  # it has just begun or ended
        return 0.0
