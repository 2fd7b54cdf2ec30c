"""Copies of a shared store in a folder of the form that a server alone has."""

import shutil
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from offbeat_core.errors import OffbeatError
from offbeat_core.files import sync_file, sync_folder

from offbeat.service.blobs.blobs import NoSuchBlobError
from offbeat.service.log.copy_rows import copy_bodies, copy_rows, last_number, snapshot
from offbeat.service.log.log import BEST, LogUnavailableError, Row
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.log.tables import given_run, is_rare, log
from offbeat.service.store.shared_files import OWNER as CHECKPOINT
from offbeat.service.store.shared_files import model_name
from offbeat.service.store.shared_store import SharedStore, opened_shared
from offbeat.service.store_settings import StoreSettings

_MAX_ATTEMPTS = 20


def back_up_shared(folder: Path, settings: StoreSettings, target: Path) -> int:
    """Copy the run in a shared store into a folder; return the number of its last row.

    The servers may run. The copy is of the log up to that row, with what these rows need. Tokens, certificates and
    evaluations are those of a server's ``folder``, if it has them.
    """
    if target.exists() and any(target.iterdir()):
        raise OffbeatError(f"{target} is not empty: take another folder")
    with opened_shared(settings) as store:
        number = copy_to_folder(store, target)
    copy_own_files(folder, target)
    return number


def copy_to_folder(store: SharedStore, target: Path, last: int | None = None) -> int:
    """Copy the rows, with their files; return the last one's number.

    ``last`` is the last row to copy; None: all. All is on disk afterwards. If a checkpoint deletes a file before it is
    copied, the copy continues from that checkpoint.
    """
    for name in ("", "checkpoints", "models", "updates", "partial"):
        (target / name).mkdir(0o700, parents=True, exist_ok=True)
    (target / "offbeat.sqlite").touch(0o600)
    run = store.log.run
    copy = open_log(sqlite_url(target / "offbeat.sqlite"), enter=lambda engine: given_run(engine, run))
    with closing(copy), store.log.connected() as source, _disk(target), copy.connected() as rows:
        for _ in range(_MAX_ATTEMPTS):
            copy_rows(source, rows, run, last or last_number(source, run))  # most of them, without a snapshot
            source.rollback()
            with snapshot(source):
                end = copy_rows(source, rows, run, last or last_number(source, run))
                checkpoint = copy.newest_now(CHECKPOINT)
                best = copy.newest_now(BEST)
                if checkpoint is None:
                    raise OffbeatError(
                        f"{store.settings.log} does not hold a checkpoint yet: wait until a server has started"
                    )
                copy_bodies(source, rows, run, checkpoint.values["number"], end)
            with suppress(NoSuchBlobError):
                _copy_files(store, target, list(_files(rows, run, checkpoint.values, best)))
                return end
    raise OffbeatError(
        f"{store.settings.blobs} changes faster than it can be copied: raise service.checkpoint_seconds for a while"
    )


def copy_own_files(folder: Path, target: Path) -> None:
    """Copy what a server keeps for itself: tokens, certificates, evaluations."""
    for name in ("admin-token", "enrolment-token", "evaluations.jsonl"):
        if (folder / name).exists():
            _copy(folder / name, target / name)
    if (folder / "tls").is_dir():
        (target / "tls").mkdir(0o700, exist_ok=True)
        for path in (folder / "tls").iterdir():
            _copy(path, target / "tls" / path.name)


@contextmanager
def _disk(target: Path) -> Generator[None]:
    try:
        yield
    except LogUnavailableError as error:
        raise OffbeatError(f"cannot write {target}: {error}: take a target on a disk with more space") from None


def _files(
    rows: sa.Connection, run: str, checkpoint: dict[str, Any], best: Row | None
) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each shared file, its SHA-256, and its path in a folder."""
    yield checkpoint["file"], checkpoint["sha256"], f"checkpoints/{checkpoint['number']}.safetensors"
    for version, (name, digest) in checkpoint["models"].items():
        yield name, digest, f"models/{version}.safetensors"
    if best is not None:
        version, digest = best.values["version"], best.values["sha256"]
        yield model_name(version, digest), digest, f"models/{version}.safetensors"
    later = (log.c.run == run) & ~is_rare & (log.c.number > checkpoint["number"]) & log.c.blob.is_not(None)
    for name, digest in rows.execute(sa.select(log.c.blob, log.c.digest).where(later)):
        yield f"updates/{name}", digest, f"updates/{name}"


def _copy_files(store: SharedStore, target: Path, files: list[tuple[str, str, str]]) -> None:
    kept = {target / path for _, _, path in files}
    for folder in ("checkpoints", "models", "updates"):
        for path in (target / folder).iterdir():
            if path not in kept:
                path.unlink()
    for name, digest, path in files:
        if not (target / path).exists():
            with store.file(name, digest) as file:
                _copy(file, target / path)
            store.forget(name)
    for folder in ("checkpoints", "models", "updates", ""):
        sync_folder(target / folder)


def _copy(source: Path, target: Path) -> None:
    """Copy a file, on disk; only the owner may read the copy."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    partial.touch(0o600, exist_ok=False)
    shutil.copyfile(source, partial)
    sync_file(partial)
    partial.replace(target)
