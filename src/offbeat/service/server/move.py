"""The move of a run to another store.

The source stays whole. The mover leads its log, so that nobody else can append to it. All rows, with their numbers, and
all files are copied first; the target does not count as a run's store yet. Then the source's last row says where the
run has gone: from this row on no server starts there. Then the target begins to count. A move that was killed is done
again from the beginning; behind that row, only to the same target.
"""

import asyncio
import json
import secrets
import shutil
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import sqlalchemy as sa
from filelock import FileLock, Timeout
from offbeat_core.digests import digest_of_file, kind_of
from offbeat_core.errors import OffbeatError
from offbeat_core.files import sha256 as digest_of
from offbeat_core.files import sync_folder

from offbeat.checkpoint_values import read_values
from offbeat.service.blobs.check_blobs import check
from offbeat.service.blobs.open_blobs import open_blobs
from offbeat.service.log import place
from offbeat.service.log.copy_rows import copy_bodies, copy_rows
from offbeat.service.log.log import BEST, Change, Row
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.log.show_life import show_life
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.tables import existing_run, hidden_run, is_moving, is_rare, log, publish_run
from offbeat.service.log.term import Term
from offbeat.service.server.shared_server import is_alive
from offbeat.service.store.database import database_of, numbers_of, opened
from offbeat.service.store.disk import UnreachableFilesError
from offbeat.service.store.shared_backup import copy_own_files, copy_to_folder
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.store.shared_store import SharedStore, one_line, opened_shared
from offbeat.service.store_settings import StoreSettings

_LOCK_SECONDS = 0.5
_LOOK_SECONDS = 1.5  # longer than between two signs of a server's life
_CACHE_BYTES = 2**32


def move_to_store(folder: Path, settings: StoreSettings) -> int:
    """Move the run in a stopped server's folder to a log and blobs that servers share.

    Returns the number of the last row that was moved.

    Raises:
        OffbeatError: A server runs, the target holds a run, or cannot be used.
    """
    database_of(folder)
    with _locked(folder), opened(folder), one_line(settings):
        source = open_log(sqlite_url(folder / "offbeat.sqlite"), enter=existing_run)
        with closing(source), TemporaryDirectory(prefix="offbeat-") as cache:
            try:
                return asyncio.run(_to_store(folder, source, settings, Path(cache)))
            except UnreachableFilesError as error:
                raise OffbeatError(f"{error}: run the same command again") from None


def move_to_folder(folder: Path, settings: StoreSettings, target: Path) -> int:
    """Move the run in a shared store to a folder; all of its servers are stopped.

    Returns the number of the last row that was moved. ``folder`` is a server's own, for its tokens and certificates.

    Raises:
        OffbeatError: A server runs, the target holds something, or the store cannot be used.
    """
    with opened_shared(settings) as store:
        _check_silence(store.log)
        return asyncio.run(_to_folder(folder, store, target.resolve()))


class _Mover(NamedTuple):
    """The leader of the log that is left."""

    term: Term
    row: Row  # with which it has begun, and the last one that the target gets
    is_gone: bool  # by an earlier attempt: the log has its last row


async def _to_store(folder: Path, source: SqlLog, settings: StoreSettings, cache: Path) -> int:
    blobs = open_blobs(settings.blobs, cache, _CACHE_BYTES)
    await check(blobs)
    number = max(numbers_of(folder / "checkpoints"), default=None)
    if number is None:
        raise OffbeatError(f"{folder} does not hold a checkpoint: start its server once, and stop it")
    engine_of_target: list[sa.Engine] = []

    def enter(engine: sa.Engine) -> str:
        engine_of_target.append(engine)
        return hidden_run(engine, source.run)

    name = f"{settings.log} and {settings.blobs}"
    target = await asyncio.to_thread(open_log, settings.log, enter=enter)
    with closing(target):
        (engine,) = engine_of_target
        if not is_moving(engine):
            return _check_arrived(source, target, target.run, name)
        mover = await _begin(source, name)
        files = SharedFiles(blobs, source.run, folder)
        (folder / "partial").mkdir(0o700, exist_ok=True)
        await asyncio.to_thread(_copy_rows, source, target, number, mover.row.number)
        await _upload_updates(folder, source, files, number, mover.row.number)
        models = {
            version: folder / "models" / f"{version}.safetensors" for version in _versions(folder, number, source)
        }
        digests = {version: (path, await asyncio.to_thread(digest_of, path)) for version, path in models.items()}
        change = await files.upload_checkpoint(number, folder / "checkpoints" / f"{number}.safetensors", digests)
        assert target.place is not None
        changes = [place.found(target.place), change]
        rows = [_row(mover.row, i, each) for i, each in enumerate(changes, start=1)]
        await target.append(rows, after=(mover.row.number, mover.row.epoch))
        await _leave(mover, name)
        await asyncio.to_thread(publish_run, engine)
    return mover.row.number


async def _to_folder(folder: Path, store: SharedStore, target: Path) -> int:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        if not (target / "offbeat.sqlite").exists():
            raise OffbeatError(f"{target} is not empty: take another folder")
        with closing(open_log(sqlite_url(target / "offbeat.sqlite"), enter=existing_run)) as arrived:
            return _check_arrived(store.log, arrived, arrived.run, str(target))
    mover = await _begin(store.log, str(target))
    partial = target.with_name(f".{target.name}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    async with _shown(store.log, mover):
        if partial.exists():
            await asyncio.to_thread(shutil.rmtree, partial)
        await asyncio.to_thread(copy_to_folder, store, partial, mover.row.number)
        copy_own_files(folder, partial)
        sync_folder(partial)
        await _leave(mover, str(target))
    partial.rename(target)
    sync_folder(target.parent)
    return mover.row.number


async def _begin(source: SqlLog, target: str) -> _Mover:
    """Lead the source, unless an earlier attempt has led it to its end."""
    last = source.newest_now(place.OWNER)
    gone = place.target_of(last)
    if last is not None and gone is not None:
        if gone != target:
            place.check_place(last, None)
        (row,) = source.read_now(log.c.number == last.number - 1)
        return _Mover(Term(source, row.name, last.number, last.epoch), row, is_gone=True)
    number = source.last_number_now()
    term = Term(source, secrets.token_hex(8), number, await source.last_epoch())
    if not await term.lead():
        raise OffbeatError("a server has begun to lead this run: stop all of its servers")
    (row,) = source.read_now(log.c.number == term.number)
    return _Mover(term, row, is_gone=False)


async def _leave(mover: _Mover, target: str) -> None:
    if not mover.is_gone:
        await mover.term.append([_row(mover.row, 1, place.left(target))])


def _check_arrived(source: SqlLog, target: SqlLog, held: str, name: str) -> int:
    """Return the last row moved, if an earlier attempt has ended but for its answer."""
    last = source.newest_now(place.OWNER)
    if held == source.run and last is not None and place.target_of(last) == name:
        number = last.number - 1
        same = log.c.number == number
        is_left = place.target_of(target.newest_now(place.OWNER)) is not None
        if not is_left and target.read_now(same) == source.read_now(same):
            return number
    raise OffbeatError(f"{name} holds a run already: take an empty one")


def _copy_rows(source: SqlLog, target: SqlLog, checkpoint: int, last: int) -> None:
    with source.connected() as rows, target.connected() as copies:
        copy_rows(rows, copies, source.run, last)
        copy_bodies(rows, copies, source.run, checkpoint, last)


async def _upload_updates(folder: Path, source: SqlLog, files: SharedFiles, checkpoint: int, last: int) -> None:
    later = ~is_rare & (log.c.number > checkpoint) & (log.c.number <= last) & log.c.blob.is_not(None)
    for row in source.read_now(later):
        path = folder / "updates" / str(row.blob)
        digest = str(row.digest)
        if not path.exists() or await asyncio.to_thread(digest_of_file, path, kind_of(digest)) != digest:
            raise OffbeatError(f"{path} is broken: it does not hold the update of row {row.number}; restore a backup")
        await files.upload(path, f"updates/{row.blob}")


def _versions(folder: Path, number: int, source: SqlLog) -> set[int]:
    """Return the versions of the checkpoint, and the best one."""
    best = source.newest_now(BEST)
    versions = read_values(folder / "checkpoints" / f"{number}.safetensors")["versions"]
    return {*versions, *([] if best is None else [best.values["version"]])}


def _row(begun: Row, offset: int, change: Change) -> Row:
    return Row(begun.number + offset, begun.epoch, change.owner, change.name, json.dumps(change.arguments))


def _check_silence(source: SqlLog) -> None:
    """Raise ``OffbeatError`` if a server shows signs of life."""
    before = source.servers_now()
    if not any(map(is_alive, before)):
        return
    time.sleep(_LOOK_SECONDS)
    beats = {(server.sign.name, server.sign.leads, server.beats) for server in before}
    for server in source.servers_now():
        if is_alive(server) and (server.sign.name, server.sign.leads, server.beats) not in beats:
            verb = "leads" if server.sign.leads else "stands by"
            raise OffbeatError(f"the server on {server.sign.name} {verb}: stop all servers of this run first")


@asynccontextmanager
async def _shown(source: SqlLog, mover: _Mover) -> AsyncGenerator[None]:
    """Keep servers that are started during the move from leading."""
    life = asyncio.create_task(show_life(source, mover.row.epoch, f"offbeat server move on {socket.gethostname()}"))
    try:
        yield
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    try:
        with FileLock(folder / "server.lock", timeout=_LOCK_SECONDS, poll_interval=0.02):
            yield
    except Timeout:
        raise OffbeatError(f"{folder} is in use by a server: stop it first") from None
