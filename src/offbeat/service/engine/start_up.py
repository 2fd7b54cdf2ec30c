"""From a folder to a server's state: the last checkpoint, and the log's records after it."""

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offbeat.algorithms.components.state import prefixed, under
from offbeat.checkpoint import read_checkpoint, write_checkpoint
from offbeat.coordinator import Coordinator
from offbeat.errors import OffbeatError
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.evaluation import discard_links
from offbeat.service.store.call_records import call_of
from offbeat.service.store.disk import Disk
from offbeat.service.store.journal import Journal
from offbeat.service.store.model_files import Layout, ModelFiles, numbers_of
from offbeat.service.store.reserve_file import Reserve
from offbeat.service.store.segments import Segments
from offbeat.service.store.store import Store, sync_folder
from offbeat.service.updates.digests import Digests
from offbeat.service.updates.update_body import StoredUpdate, check_body
from offbeat.service.updates.uploads import clean_up
from offbeat.service.updates.usual_norms import UsualNorms, norm_unit

_LOG_BYTES = 2**17  # that the reserve has for the log, beside a checkpoint and a model


async def open_engine(
    store: Store,
    coordinator: Coordinator,
    layout: Layout,
    *,
    stop_versions: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    failed: Callable[[BaseException], None],
) -> Engine:
    """Return the engine as it was when the last server ended, however that was; or a fresh one.

    Every version that was ever handed out is made again bit for bit, since the same calls are made in the same order.

    Args:
        store: The folder.
        coordinator: A fresh one, which must be as it was when the run began, but for the initial model.
        layout: What the model's vector is made of.
        stop_versions: The run is over at this version.
        clock: Seconds that pass evenly.
        failed: Called if the disk fails.

    Raises:
        OffbeatError: The store is broken.
    """
    models = ModelFiles(store.folder / "models", layout)
    number, now, digests, norms, versions = _load(store, coordinator)
    # What a kill has left of the others may be broken.
    models.keep(versions)
    models.discard_pending()
    discard_links(store.folder)
    replayed: list[tuple[int, StoredUpdate]] = []
    algorithm = coordinator.algorithm
    for record in store.records(number):
        if record.number != number + 1:
            raise OffbeatError(f"{store.database_path} is broken: its log has no record {number + 1}; restore a backup")
        try:
            call = call_of(record, coordinator, store.folder / "updates", models)
            if record.name == "assign":
                models.write(algorithm.version, algorithm.model, algorithm.down())
                models.publish(algorithm.version)
            assignment = coordinator.assignment(record.arguments["client"]) if record.name == "receive" else None
            coordinator.replay(call)
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            raise OffbeatError(
                f"{store.database_path} is broken: its log's record {record.number} does not follow from those before "
                f"it ({error}); restore a backup"
            ) from error
        if record.name == "receive":
            client, visit = record.arguments["client"], record.arguments["visit"]
            has_counted = coordinator.has_counted(client, visit)
            digests.add(client, visit, record.digest or "", counted=has_counted)
            if record.file is not None:
                update = call.arguments["vector"]
                replayed.append((record.number, update))
                if has_counted and assignment is not None:
                    steps, said = record.arguments["steps"], record.arguments["normaliser"]
                    unit = norm_unit(algorithm.payload, assignment.plan, steps, said)
                    norms.add(client, check_body(update, None) / unit)
        number, now = record.number, max(now, record.arguments["now"])
    coordinator.forget_presence()
    disk = Disk(Reserve(store.folder / "reserve"), failed)
    journal = Journal(store.database, number, disk, failed)
    segments = Segments(store.folder / "updates")
    engine = Engine(
        coordinator,
        journal,
        models,
        segments,
        disk,
        digests=digests,
        norms=norms,
        now=now,
        stop_versions=stop_versions,
        clock=clock,
    )
    for of_update, update in replayed:
        engine.files.note(of_update, update)
    coordinator.record = engine.record
    clean_up(store.folder, {update.path.name for _, update in replayed})
    try:
        await checkpoint(store.folder, engine)
    except BaseException:
        await journal.close()
        engine.close()
        raise
    return engine


async def checkpoint(folder: Path, engine: Engine) -> None:
    """Write the engine's state into the store's folder, and delete what is not needed any more.

    Raises:
        OSError: The disk is full.
        Refusal: The same.
    """
    async with engine.lock:
        number, now = engine.journal.number, engine.now
        state = await engine.aggregate(engine.coordinator.state_dict)
        versions = engine.needed_versions()
        await engine.publish()
        of_uploads = {
            "digests": engine.digests.entries(),
            "norms": engine.norms.entries(),
            "usual_norm": engine.norms.usual,
        }
    # So that the log has all that the checkpoint covers: it is the run's history.
    await engine.journal.durable(on_reserve=True)
    path = _path(folder, number)
    whole = {**prefixed("coordinator", state), "now": now, **of_uploads, "versions": sorted(versions)}
    models = [engine.models.path(version) for version in versions]
    await asyncio.to_thread(_write, path, whole, models, engine.checkpoint_lock)
    async with engine.lock:
        engine.models.keep(engine.needed_versions() | versions | engine.kept_versions)
        engine.kept_versions = versions
        # At once, so that nobody puts anything into them meanwhile.
        older = [_path(folder, other) for other in numbers_of(path.parent) if other < number]
        for old in [*engine.files.forget(number), *older]:
            old.unlink(missing_ok=True)
    engine.reserve_size = path.stat().st_size + engine.models.path(max(versions)).stat().st_size + _LOG_BYTES
    if engine.disk.problem is None:
        await asyncio.to_thread(engine.disk.keep_reserve, engine.reserve_size)


def _write(path: Path, state: dict[str, Any], models: list[Path], lock: threading.Lock) -> None:
    with lock:
        for model in models:
            with model.open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(models[0].parent)
        try:
            write_checkpoint(path, state)
        except OSError:
            path.with_name(f".{path.name}.partial").unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def _load(store: Store, coordinator: Coordinator) -> tuple[int, float, Digests, UsualNorms, list[int]]:
    """Load the last checkpoint; return its number and time, the updates' digests and norms, the versions in models/."""
    numbers = numbers_of(store.folder / "checkpoints")
    if not numbers:
        if store.last_number():
            raise OffbeatError(f"{store.folder} is broken: there is no checkpoint; restore a backup")
        return 0, 0.0, Digests(), UsualNorms(coordinator.clients), []
    path = _path(store.folder, max(numbers))
    try:
        state = read_checkpoint(path)
        coordinator.load_state_dict(under("coordinator", state))
    except (OffbeatError, LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise OffbeatError(f"{path} is broken, or of another version of Offbeat: restore a backup") from error
    norms = UsualNorms(coordinator.clients, state["norms"], state["usual_norm"])
    return max(numbers), state["now"], Digests(state["digests"]), norms, state["versions"]


def _path(folder: Path, number: int) -> Path:
    return folder / "checkpoints" / f"{number}.safetensors"
