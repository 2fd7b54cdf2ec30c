"""The server's folder.

```
server.lock          held by the one server that uses the folder
offbeat.sqlite       tokens, and the log of all calls that changed the coordinator
checkpoints/7.safetensors     the coordinator after the log's record 7
models/12.safetensors         version 12 of the model, while a visit needs it
updates/             complete updates: large ones in files of their own, small ones in segments
partial/             uploads that are not complete yet
reserve              keeps space back for a checkpoint on a full disk
noise-secret         the secret of the noise of private sums without a helper
```

An update's bytes are on disk before the log's record that refers to them, and both before the client gets its receipt.
A checkpoint covers the records up to its number; updates without a later record are deleted.
"""

import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError
from sqlalchemy import exc

from offbeat.service.store.database import LogRecord, log, meta, open_database

PAUSED = "paused"
"""The key in the table ``meta`` for whether the run is paused, "1" or "0"."""
EXTENDED_FROM = "extended_from"
"""That for the version at which the run ended before its file was changed, until a server has started since."""
STOP_VERSIONS = "stop_versions"
"""That for the version at which the run ends, if an admin has extended it."""

_LOCK_SECONDS = 0.5  # a command that looks whether a server runs holds the lock for an instant
_OTHERS = 0o077  # the permissions of all but the owner


class Store:
    """The folder, which one server opens at a time; made if it does not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            for name in ("", "checkpoints", "models", "updates", "partial"):
                (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = FileLock(folder / "server.lock")
            self._lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.02)
        except Timeout:
            raise OffbeatError(f"{folder} is in use by another server: stop it, or take another folder") from None
        except OSError as error:
            raise _unusable(folder, error) from None
        try:
            _close_to_others(folder)
            self.database_path = folder / "offbeat.sqlite"
            self.database = open_database(self.database_path)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise _unusable(folder, error) from None
            raise

    def close(self) -> None:
        """Let another server use the folder."""
        self.database.dispose()
        self._lock.release()

    def run_id(self, config: dict[str, Any]) -> str:
        """Return the folder's run id, a new one if the folder does not hold a run.

        Raises:
            OffbeatError: The folder holds a run with other settings; only ``stop.versions`` may grow.
        """
        wanted = json.dumps(config, sort_keys=True)
        with self.database.begin() as connection:
            found = {row.key: row.value for row in connection.execute(sa.select(meta))}
            if "config" not in found:
                found = {"config": wanted, "run": secrets.token_hex(8)}
                connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in found.items()])
            elif found["config"] != wanted:
                self._extend(connection, json.loads(found["config"]), config)
        return found["run"]

    def _extend(self, connection: sa.Connection, before: dict[str, Any], config: dict[str, Any]) -> None:
        """Let the run end at a later version."""
        end = stop_versions(before)
        if _without_versions(before) != _without_versions(config):
            keys = sorted(key for key in {*before, *config} if before.get(key) != config.get(key))
            raise OffbeatError(
                f"{self.folder} holds a run with other settings ({', '.join(keys)}): take another service.folder, or "
                "the settings that it was begun with"
            )
        if stop_versions(config) <= end:
            run = "a run without stop.versions: leave it out"
            if math.isfinite(end):
                run = f"a run of {end} versions: stop.versions may only grow"
            raise OffbeatError(f"{self.folder} holds {run}")
        connection.execute(
            sa.update(meta).where(meta.c.key == "config").values(value=json.dumps(config, sort_keys=True))
        )
        ended = {"key": EXTENDED_FROM, "value": str(end)}
        connection.execute(sa.insert(meta).prefix_with("OR IGNORE").values(ended))

    def value(self, key: str) -> str | None:
        """Return a value of the table ``meta``; None if there is none."""
        with self.database.connect() as connection:
            return connection.execute(sa.select(meta.c.value).where(meta.c.key == key)).scalar()

    def records(self, after: int) -> Iterator[LogRecord]:
        """Yield the log's records with numbers above ``after``, in order."""
        query = sa.select(log).where(log.c.number > after).order_by(log.c.number)
        try:
            with self.database.connect() as connection:
                for row in connection.execution_options(yield_per=1000).execute(query):
                    yield LogRecord.of_row(row._mapping)  # pyright: ignore[reportPrivateUsage]
        except (exc.DatabaseError, ValueError) as error:
            raise OffbeatError(f"{self.database_path} is broken ({error}): restore a backup") from error

    def last_number(self) -> int:
        """Return the number of the log's last record, 0 if the log is empty."""
        with self.database.connect() as connection:
            return connection.execute(sa.select(sa.func.max(log.c.number))).scalar() or 0


def stop_versions(config: Mapping[str, Any]) -> float:
    """Return the version at which a run of this configuration ends."""
    return config.get("stop", {}).get("versions", math.inf)


def _without_versions(config: Mapping[str, Any]) -> dict[str, Any]:
    stop = {key: value for key, value in config.get("stop", {}).items() if key != "versions"}
    return {**config, "stop": stop}


def _unusable(folder: Path, error: OSError) -> OffbeatError:
    return OffbeatError(f"cannot use the folder {folder}: {error.strerror}: set service.folder")


def _close_to_others(folder: Path) -> None:
    if os.name == "nt":
        return
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & _OTHERS and not path.is_symlink():
                path.chmod(mode & ~_OTHERS)
