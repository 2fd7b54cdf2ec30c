"""Checkpoints of the server's state."""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from offbeat_core.errors import OffbeatError
from offbeat_core.files import delete_files, sync_file, sync_folder

from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator import Coordinator
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.orphan_sweep import OrphanSweep
from offbeat.service.live.run_history import RunHistory
from offbeat.service.log.log import TERM
from offbeat.service.log.tables import is_rare, log
from offbeat.service.refusal import Refusal
from offbeat.service.store.database import numbers_of
from offbeat.service.store.server_state import ServerState
from offbeat.service.store.shared_files import SharedFiles, files_of, model_name
from offbeat.service.store.store import Store
from offbeat.service.updates.upload_history import UploadHistory, load_history
from offbeat.tensor_file import read_checkpoint, write_checkpoint

_LOG_BYTES = 2**23  # of the reserve, beside a checkpoint and a model: to empty the write-ahead log takes its size again
_MAX_SHARE = 0.05  # of the time that goes into checkpoints
_STANDBY_SECONDS = 10.0  # how far a server that stands by may lag behind
_LOOK_SECONDS = 0.5  # between two looks whether a checkpoint is due


class CheckpointWriter:
    """A writer of checkpoints, one at a time, into the store's folder.

    After a checkpoint it deletes the files that the checkpoint covers. ``reserve_size`` is how many bytes of the disk
    to keep back for the next checkpoint, its model and the log.
    """

    def __init__(self, store: Store, engine: Engine) -> None:
        self.reserve_size = 0
        self._folder = store.folder
        self._shared = store.shared
        self._engine = engine
        newest = store.newest_shared_checkpoint()
        self._shared_names = set[str]() if newest is None else files_of(newest)
        self._sweep = None
        if store.shared is not None:
            self._sweep = OrphanSweep(store.shared, self._named, engine.log_writer.confirm)
        # When each checkpoint was made, its number, and the names of shared files that it makes superfluous.
        self._covered: deque[tuple[float, int, set[str]]] = deque()
        self._kept_versions: set[int] = set()  # needed at the last checkpoint, and perhaps being downloaded
        # Held by the thread that writes, also if the call that waits for it was cancelled.
        self._write_lock = threading.Lock()
        self._one_at_a_time = asyncio.Lock()

    async def write(self) -> None:
        """Write a checkpoint; ``OSError`` or ``Refusal`` if the disk is full."""
        async with self._one_at_a_time:
            await self._write_next()

    async def write_and_forget(self) -> None:
        """Write a checkpoint, and wait until all that it covers is deleted."""
        await self.write()
        while self._covered:  # as long as a standby may read it
            await asyncio.sleep(_LOOK_SECONDS)
            async with self._one_at_a_time:
                await self._forget()

    async def _write_next(self) -> None:
        engine = self._engine
        await engine.publisher.publish()  # so that the lock is held for less time
        async with engine.lock:
            number, epoch, now = engine.log_writer.number, engine.log_writer.epoch, engine.run.now
            # At once, since clients, tokens and the audit log change without the lock.
            server = engine.state.state_dict()
            history = {**engine.history.state_dict(), "run_history": engine.run.history.state_dict()}
            coordinator = await engine.publisher.aggregate(engine.coordinator.state_dict)
            versions = _needed_versions(engine)
            await engine.publisher.publish()
        # The log is the run's history, so it has to hold all that the checkpoint covers.
        await engine.log_writer.wait_until_durable(on_reserve=True)
        path = _path(self._folder, number)
        state = {
            **prefixed("coordinator", coordinator),
            "epoch": epoch,
            "leader": engine.log_writer.leader,
            "now": now,
            "server": server,
            **history,
            "versions": sorted(versions),
        }
        models = [engine.models.path(version) for version in versions]
        await asyncio.to_thread(self._write, path, state, models)
        names: set[str] = set()
        if self._shared is not None:
            names = await self._share(self._shared, number, path, versions)
        async with engine.lock:
            updates = engine.calls.update_files.forget(number)
            models = self._superfluous_models(versions)
        # The file system takes long to delete large files.
        await asyncio.to_thread(delete_files, [*updates, *models, *self._earlier_checkpoints(number)])
        names |= {f"updates/{file.name}" for file in updates}
        self._covered.append((engine.run.now, number, names))
        await self._forget()
        self.reserve_size = path.stat().st_size + engine.models.path(max(versions)).stat().st_size + _LOG_BYTES
        if engine.disk.problem is None:
            await asyncio.to_thread(engine.disk.keep_reserve, self.reserve_size)

    def _write(self, path: Path, state: dict[str, Any], models: list[Path]) -> None:
        with self._write_lock:
            for model in models:
                sync_file(model)
            sync_folder(models[0].parent)
            write_checkpoint(path, state)

    async def _share(self, shared: SharedFiles, number: int, path: Path, versions: set[int]) -> set[str]:
        """Share the checkpoint; return the files that only the one before needed."""
        engine = self._engine
        models = {version: (engine.models.path(version), engine.models.digest(version)) for version in versions}
        change = await shared.upload_checkpoint(number, path, models)
        engine.log_writer.enter(change)
        await engine.log_writer.wait_until_durable(on_reserve=True)
        before, self._shared_names = self._shared_names, files_of(change.arguments)
        return before - self._shared_names

    async def _forget(self) -> None:
        """Delete what checkpoints cover from the log and the shared files.

        A standby may still be reading it, so it is kept for a while.
        """
        patience = 0.0 if self._shared is None else _STANDBY_SECONDS
        while self._covered and self._covered[0][0] <= self._engine.run.now - patience:
            _, number, names = self._covered.popleft()
            await self._engine.log_writer.forget_bodies(number)
            if self._shared is not None:
                await self._shared.delete(names - self._shared_names)
        if self._sweep is not None:
            await self._sweep.look(self._engine.run.now)

    def _named(self) -> set[str]:
        """Return the shared files that the log, a standby or this server needs."""
        updates = {f"updates/{name}" for name in self._engine.calls.update_files.names()}
        kept = self._engine.models
        models = {model_name(version, kept.digest(version)) for version in kept.versions()}
        return self._shared_names.union(updates, models, *(names for _, _, names in self._covered))

    def _superfluous_models(self, versions: set[int]) -> list[Path]:
        """Return the files of versions that nobody needs, also no checkpoint."""
        models = self._engine.models
        # The coordinator's newest version may have no file yet.
        kept = {max(models.versions())} | _needed_versions(self._engine) | versions | self._kept_versions
        if self._engine.publisher.evaluations is not None:
            kept |= self._engine.publisher.evaluations.waiting  # one of them may be the best
        self._kept_versions = versions
        return models.forget(kept)

    def _earlier_checkpoints(self, number: int) -> list[Path]:
        return [_path(self._folder, other) for other in numbers_of(self._folder / "checkpoints") if other < number]


def _needed_versions(engine: Engine) -> set[int]:
    """Return the versions that visits or evaluations need, the newest and the best."""
    evaluations, best = engine.client_evaluations, engine.state.best
    asked = set[int]() if evaluations is None else evaluations.needed_versions
    kept = set[int]() if best is None else {best["version"]}
    if engine.run.best is not None and engine.run.best.candidate is not None:
        kept.add(engine.run.best.candidate.version)
    return engine.run.needed_versions().union(asked, engine.publisher.due, kept)


class LoadedCheckpoint(NamedTuple):
    """The server's state at its last checkpoint, but for the coordinator's."""

    number: int  # of the last row that the checkpoint covers
    epoch: int  # of that row
    now: float  # seconds that the run had taken
    state: ServerState
    history: UploadHistory
    run_history: RunHistory
    versions: list[int]  # whose files are complete


def load_checkpoint(store: Store, coordinator: Coordinator) -> LoadedCheckpoint:
    """Load the last checkpoint into a coordinator; return the rest of it."""
    numbers = numbers_of(store.folder / "checkpoints")
    if not numbers:
        if store.log.read_now(~is_rare, 1):
            raise OffbeatError(f"{store.folder} is broken: there is no checkpoint; restore a backup")
        return LoadedCheckpoint(0, 0, 0.0, ServerState(), load_history(coordinator.clients), RunHistory(), [])
    path = _path(store.folder, max(numbers))
    try:
        state = read_checkpoint(path)
        coordinator.load_state_dict(under("coordinator", state))
    except (OffbeatError, LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise OffbeatError(f"{path} is broken, or of another version of Offbeat: restore a backup") from error
    begun = store.log.read_now(is_rare & (log.c.owner == TERM) & (log.c.epoch == state["epoch"]))
    if [row.name for row in begun] != [state["leader"]]:
        raise OffbeatError(
            f"the log is not that of {path}: it is older, or was restored and went on; restore all of a backup, or "
            "take an empty service.folder beside a shared store"
        )
    history = load_history(coordinator.clients, state)
    run_history = RunHistory(state["run_history"])
    server = ServerState(state["server"])
    return LoadedCheckpoint(max(numbers), state["epoch"], state["now"], server, history, run_history, state["versions"])


def _path(folder: Path, number: int) -> Path:
    return folder / "checkpoints" / f"{number}.safetensors"


class CheckpointSchedule:
    """Has a checkpoint written when one is due and the log has grown.

    On a full disk a checkpoint is due at once, since it frees the files that it covers. Then, also if the checkpoint
    cannot be written, the write-ahead log is emptied, and the reserve file is made again. Once that fits, the disk no
    longer counts as full, and a version that could not be written is written: the server is ready without a request.

    ``seconds`` pass, or ``max_bytes`` of updates are stored, between two checkpoints.
    """

    def __init__(self, engine: Engine, checkpoints: CheckpointWriter, *, seconds: float, max_bytes: int) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._number, self._stored_bytes = engine.log_writer.number, engine.calls.stored_bytes  # at the last one
        self._ended, self._took = engine.run.now, 0.0

    async def run(self) -> None:
        """Have checkpoints written; never returns."""
        while True:
            await asyncio.sleep(min(self._seconds, _LOOK_SECONDS))
            was_full = self._engine.disk.problem is not None
            if self._engine.log_writer.number != self._number and self._is_due(was_full):
                await self._try()
            if was_full and not self._engine.log_writer.is_blocked:
                await self._try_to_end_pause()
            if self._engine.publisher.problem is not None and self._engine.disk.problem is None:
                await self._publish_again()

    async def _try_to_end_pause(self) -> None:
        engine = self._engine
        # The write-ahead log is part of what fills the disk. To empty it takes space, so the reserve is kept after it.
        with suppress(Refusal):  # then the next look finds a log that is blocked
            await engine.log_writer.tidy()
            await engine.log_writer.wait_until_durable(on_reserve=True)
            await asyncio.to_thread(engine.disk.keep_reserve, self._checkpoints.reserve_size)

    async def _publish_again(self) -> None:
        # A request would do so too, but a load balancer sends none until the server is ready.
        with suppress(Refusal):  # then the next look tries again
            async with self._engine.lock:
                await self._engine.publisher.publish()

    def _is_due(self, is_full: bool) -> bool:
        passed = self._engine.run.now - self._ended
        if is_full:
            return passed >= self._took
        if passed < self._took / _MAX_SHARE:
            return False
        stored = self._engine.calls.stored_bytes - self._stored_bytes
        return passed >= self._seconds or stored >= self._max_bytes

    async def _try(self) -> None:
        engine, began = self._engine, self._engine.run.now
        number, stored = engine.log_writer.number, engine.calls.stored_bytes
        try:
            await self._checkpoints.write()
            shares = engine.shared is not None  # which enters a row
            self._number, self._stored_bytes = number + shares, stored
        except OSError as error:
            engine.disk.refusal(error)  # if it passes, the last checkpoint still holds
        except Refusal:
            pass  # the same
        self._ended, self._took = engine.run.now, engine.run.now - began
