"""Backups of a server's folder, made while the server runs."""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from offbeat_core.errors import OffbeatError

from offbeat.checkpoint_values import read_values
from offbeat.service.server.host_folder import RUNS, run_folders
from offbeat.service.store.database import best_version, database_of, numbers_of, opened

_MAX_ATTEMPTS = 20
_BLOCK_BYTES = 2**20


def back_up(folder: Path, target: Path) -> int:
    """Copy all that a server needs to continue; return the number of its last row.

    Only the owner may read the copy. The secret of its noise is left out: resumed later, the copy would release sums
    without counting the participations since the copy was made. The server may run. If one of its checkpoints deletes a
    file before it is copied, the copy begins again.
    """
    database_of(folder)
    if target.exists() and any(target.iterdir()):
        raise OffbeatError(f"{target} is not empty: take another folder")
    for _ in range(_MAX_ATTEMPTS):
        try:
            with opened(folder):  # which has the form that is copied here
                return _copy(folder, target)
        except FileNotFoundError:
            shutil.rmtree(target, ignore_errors=True)
        except sqlite3.Error as error:
            raise OffbeatError(
                f"cannot copy {folder / 'offbeat.sqlite'} to {target}: {error}: take a target on a disk with more "
                "space, or restore an earlier backup if the database is broken"
            ) from None
    raise OffbeatError(f"{folder} changes faster than it can be copied: raise service.checkpoint_seconds for a while")


def _copy(folder: Path, target: Path) -> int:
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("checkpoints", "models", "updates", "partial"):
        (target / name).mkdir(mode=0o700, exist_ok=True)
    # First the checkpoint, then the log, which then holds all later rows, then the files that these refer to.
    number = max(numbers_of(folder / "checkpoints"), default=None)
    if number is None:
        raise OffbeatError(f"{folder} does not hold a checkpoint yet: wait until the server has started")
    checkpoint = Path("checkpoints", f"{number}.safetensors")
    _copy_file(folder / checkpoint, target / checkpoint)
    # The log then holds all versions that were evaluated: evaluations are of versions whose rows are on disk.
    with suppress(FileNotFoundError):
        _copy_file(folder / "evaluations.jsonl", target / "evaluations.jsonl")
    (target / "offbeat.sqlite").touch(0o600, exist_ok=False)
    with (
        closing(sqlite3.connect(folder / "offbeat.sqlite")) as source,
        closing(sqlite3.connect(target / "offbeat.sqlite")) as copy,
    ):
        source.backup(copy)
        if not (folder / checkpoint).exists():
            raise FileNotFoundError  # a later one may have deleted small updates that this one lacks
        rows = copy.execute("SELECT blob FROM log WHERE number > ? AND blob IS NOT NULL", (number,))
        files = [Path("updates", name) for (name,) in rows]
        last = copy.execute("SELECT max(number) FROM log").fetchone()[0] or 0
        best = best_version(copy)
    versions = {*read_values(target / checkpoint)["versions"], *([] if best is None else [best["version"]])}
    files += [Path("models", f"{version}.safetensors") for version in versions]
    for file in files:
        _copy_file(folder / file, target / file)
    _copy_keys(folder, target)
    return last


def back_up_host(folder: Path, target: Path) -> int:
    """Copy a server of several runs; return their number.

    See ``back_up``.
    """
    if target.exists() and any(target.iterdir()):
        raise OffbeatError(f"{target} is not empty: take another folder")
    runs = run_folders(folder)
    for run in runs:
        back_up(run, target / RUNS / run.name)
    # Then the server's own log, which has all sites that the runs have: a number must not go to another site.
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    (target / RUNS).mkdir(exist_ok=True, mode=0o700)
    (target / "offbeat.sqlite").touch(0o600, exist_ok=False)
    with (
        closing(sqlite3.connect(folder / "offbeat.sqlite")) as source,
        closing(sqlite3.connect(target / "offbeat.sqlite")) as copy,
    ):
        source.backup(copy)
    _copy_keys(folder, target)
    return len(runs)


def _copy_keys(folder: Path, target: Path) -> None:
    """Copy tokens and certificates."""
    for file in ("admin-token", "enrolment-token"):
        with suppress(FileNotFoundError):  # the next start makes another
            _copy_file(folder / file, target / file)
    if (folder / "tls").is_dir():
        (target / "tls").mkdir(0o700, exist_ok=True)
        for path in (folder / "tls").iterdir():
            _copy_file(path, target / "tls" / path.name)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file; only the owner may read the copy."""
    with source.open("rb") as file:
        target.touch(0o600, exist_ok=False)
        with target.open("wb") as copy:
            shutil.copyfileobj(file, copy, _BLOCK_BYTES)
