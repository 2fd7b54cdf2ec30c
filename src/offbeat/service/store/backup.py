"""A copy of a server's folder, made while the server runs."""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from offbeat.checkpoint import read_checkpoint
from offbeat.errors import OffbeatError
from offbeat.service.store.model_files import numbers_of

_MOST_TRIES = 20


def back_up(folder: Path, target: Path) -> int:
    """Copy what a server needs to go on, and return the number of the log's last record in the copy.

    The server may run meanwhile; a checkpoint that it makes may delete what is being copied, and then the copy is begun
    again.

    Args:
        folder: The server's.
        target: A folder that is not there, or is empty.

    Raises:
        OffbeatError: There is no server's folder, or the copy cannot be made.
    """
    if not (folder / "offbeat.sqlite").exists():
        raise OffbeatError(f"{folder} is no server's folder: it holds no offbeat.sqlite")
    if target.exists() and any(target.iterdir()):
        raise OffbeatError(f"{target} is not empty: take another folder")
    for _ in range(_MOST_TRIES):
        with suppress(FileNotFoundError):
            return _copy(folder, target)
        shutil.rmtree(target, ignore_errors=True)
    raise OffbeatError(f"{folder} changes faster than it can be copied: raise service.checkpoint_seconds for a while")


def _copy(folder: Path, target: Path) -> int:
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("checkpoints", "models", "updates", "partial"):
        (target / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    # First the checkpoint, then the log, which then holds all that comes after it, then what the log refers to.
    number = max(numbers_of(folder / "checkpoints"), default=None)
    if number is None:
        raise OffbeatError(f"{folder} holds no checkpoint yet: wait until the server has started")
    checkpoint = Path("checkpoints", f"{number}.safetensors")
    shutil.copyfile(folder / checkpoint, target / checkpoint)
    with (
        closing(sqlite3.connect(folder / "offbeat.sqlite")) as source,
        closing(sqlite3.connect(target / "offbeat.sqlite")) as copy,
    ):
        source.backup(copy)
        rows = copy.execute("SELECT DISTINCT file FROM log WHERE number > ? AND file IS NOT NULL", (number,))
        files = [Path("updates", name) for (name,) in rows]
        last = copy.execute("SELECT max(number) FROM log").fetchone()[0] or 0
    files += [Path("models", f"{version}.safetensors") for version in read_checkpoint(target / checkpoint)["versions"]]
    for file in files:
        shutil.copyfile(folder / file, target / file)
    for file in ("admin-token", "enrolment-token"):
        shutil.copy(folder / file, target / file)
    with suppress(FileNotFoundError):
        shutil.copytree(folder / "tls", target / "tls")
    return last
