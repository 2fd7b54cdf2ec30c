"""Clients and progress from the folder of a stopped server, or from a backup."""

import math
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError

from offbeat.checkpoint_values import read_values
from offbeat.service.log.log import Row
from offbeat.service.log.place import OWNER as PLACE
from offbeat.service.log.place import target_of
from offbeat.service.store.client_tally import listed_client
from offbeat.service.store.database import COLUMNS, RARE, database_of, numbers_of, opened, rows_after
from offbeat.service.store.server_state import ServerState

NO_BEST = "no best version is kept: set service.keep_best to a metric of [evaluate], and wait for an evaluation"


def check_stopped(folder: Path, problem: str) -> None:
    """Raise ``OffbeatError`` with ``problem`` if a server uses the folder."""
    path = folder / "server.lock"
    if not path.exists():
        return
    try:
        with FileLock(path, timeout=0):
            return
    except Timeout:
        raise OffbeatError(f"a server uses {folder} but does not answer: {problem}") from None
    except OSError:  # a folder that can only be read
        return


def clients(folder: Path) -> list[dict[str, Any]]:
    """Return the clients at the end of the log, as in ``ListedClient``."""
    return listed(saved_state(folder)[0])


def listed(state: ServerState) -> list[dict[str, Any]]:
    """Return the clients of a state, as in ``ListedClient``."""
    return [
        listed_client(client, site.name, site.enrolled, site.revoked, state.tally[client]).model_dump()
        for client, site in state.registry.sites.items()
        if site.forgotten is None
    ]


def status(folder: Path) -> dict[str, Any]:
    """Return those values of ``Status`` that the folder holds."""
    version = max(numbers_of(folder / "models"), default=0)
    return {"server": _state(folder), **progress(*saved_state(folder), version)}


def _state(folder: Path) -> str:
    query = f"SELECT {COLUMNS} FROM log WHERE {RARE} AND owner = ? ORDER BY number DESC LIMIT 1"
    with _database(folder) as database:
        row = database.execute(query, (PLACE,)).fetchone()
    target = target_of(None if row is None else Row(*row))
    return "stopped" if target is None else f"moved to {target}"


def progress(state: ServerState, now: float, version: int) -> dict[str, Any]:
    """Return the values of ``Status`` of a state after ``now`` seconds.

    ``version`` is that of the newest model that is stored: a server that replays the log may come to a newer one.
    """
    total, config, end = state.tally.total(), state.run.config, state.run.stop_versions
    return {
        "algorithm": config.get("algorithm", {}).get("algorithm", "?"),
        "saved_version": version,
        "stop_versions": None if end == math.inf else end,
        **({"finished": True} if version >= end else {}),
        "paused": state.run.is_paused,
        "enrolled": len(state.registry.sites),
        "clients": state.run.clients or config.get("service", {}).get("clients"),
        "assigned": total.visits,
        "counted": total.counted,
        "unused": total.refused,
        "lost": total.lost,
        "mean_staleness": total.mean_staleness,
        "best": state.best,
        "run_seconds": now,
    }


def saved_state(folder: Path) -> tuple[ServerState, float]:
    """Return the state at the end of a folder's log, and the run's seconds."""
    with _database(folder) as database:
        number = max(numbers_of(folder / "checkpoints"), default=0)
        values = read_values(folder / "checkpoints" / f"{number}.safetensors") if number else {}
        state, now = ServerState(values.get("server")), values.get("now", 0.0)
        for row in rows_after(database, number):
            values = row.values
            state.apply(row, values)
            now = values.get("now", now)
    return state, now


@contextmanager
def _database(folder: Path) -> Generator[sqlite3.Connection]:
    """Open the database to read it; a failure then is the folder's."""
    path = database_of(folder)
    log = path.with_name(f"{path.name}-wal")
    # SQLite makes files beside a database that it reads, unless nobody can change that.
    is_fixed = not os.access(folder, os.W_OK) and not (log.exists() and log.stat().st_size)
    try:
        with opened(folder, is_fixed=is_fixed) as database:
            yield database
    except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
        raise OffbeatError(f"{path} is broken ({error}): restore a backup") from None
