"""Clients and progress from the folder of a stopped server, or from a backup."""

import json
import math
import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError

from offbeat.service.store.client_tally import listed_client, read_tally
from offbeat.service.store.database import check_schema, database_of, numbers_of, open_read_only
from offbeat.service.store.store import PAUSED, STOP_VERSIONS, stop_versions


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
    with _database(folder) as database:
        tally = read_tally(database)
        rows = database.execute("SELECT client, name, enrolled, revoked FROM clients ORDER BY client")
        return [
            listed_client(client, name, enrolled, revoked, tally[client]).model_dump()
            for client, name, enrolled, revoked in rows
        ]


def status(folder: Path) -> dict[str, Any]:
    """Return those values of ``Status`` that the folder holds.

    ``saved_version`` is that of the newest model in the folder: a server that replays the log may come to a newer one.
    """
    version = max(numbers_of(folder / "models"), default=0)
    with _database(folder) as database:
        total = read_tally(database).total()
        values = dict(database.execute("SELECT key, value FROM meta"))
        (enrolled,) = database.execute("SELECT count(*) FROM clients").fetchone()
        last = database.execute("SELECT arguments FROM log ORDER BY number DESC LIMIT 1").fetchone()
        config = json.loads(values.get("config", "{}"))
        end = max(stop_versions(config), int(values.get(STOP_VERSIONS, 0)))
        return {
            "server": "stopped",
            "algorithm": config.get("algorithm", {}).get("algorithm", "?"),
            "saved_version": version,
            "stop_versions": None if end == math.inf else end,
            **({"finished": True} if version >= end else {}),
            "paused": values.get(PAUSED) == "1",
            "enrolled": enrolled,
            "clients": config.get("service", {}).get("clients"),
            "assigned": total.visits,
            "counted": total.counted,
            "unused": total.refused,
            "lost": total.lost,
            "mean_staleness": total.mean_staleness,
            "run_seconds": json.loads(last[0])["now"] if last else 0.0,
        }


@contextmanager
def _database(folder: Path) -> Generator[sqlite3.Connection]:
    """Open the database to read it; a failure then is the folder's."""
    path = database_of(folder)
    log = path.with_name(f"{path.name}-wal")
    # SQLite makes files beside a database that it reads, unless nobody can change that.
    is_fixed = not os.access(folder, os.W_OK) and not (log.exists() and log.stat().st_size)
    try:
        with closing(open_read_only(path, is_fixed=is_fixed)) as database:
            check_schema(folder, database.execute("PRAGMA user_version").fetchone()[0])
            yield database
    except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
        raise OffbeatError(f"{path} is broken ({error}): restore a backup") from None
