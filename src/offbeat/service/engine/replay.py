"""A server's state that follows the log: at a start, and on a standby."""

from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import delete_files
from offbeat_private.masks.envelope import parse

from offbeat.coordinator import Coordinator
from offbeat.service.accounts.registry import OWNER as ACCOUNTS
from offbeat.service.engine.call_recorder import UpdateFiles
from offbeat.service.engine.live_run import needed_versions
from offbeat.service.engine.server_checkpoint import load_checkpoint
from offbeat.service.log.log import BEST, COORDINATOR, Row
from offbeat.service.store.call_records import UpdateFolder, call_of, vector_of
from offbeat.service.store.database import numbers_of
from offbeat.service.store.model_files import Layout, ModelFiles
from offbeat.service.store.shared_files import OWNER as CHECKPOINT
from offbeat.service.store.store import Store
from offbeat.service.updates.update_body import BufferedUpdate, StoredUpdate, norm_of
from offbeat.service.updates.upload_history import norm_unit


class Replay:
    """The state of the last checkpoint, and then that after each row of the log.

    All calls are made again in the same order. So every version that a client has seen is reproduced bit for bit.

    Args:
        store: Where the checkpoint lies; what an earlier server has left incomplete there is deleted.
        coordinator: A fresh one, as it was when the run began; the initial model may differ.
        layout: The model's.

    Attributes:
        number: The last row.
        epoch: That row's epoch.
        now: Seconds that the run has taken.
        files: The files of large updates that are needed.

    Raises:
        OffbeatError: The checkpoint is broken.
    """

    def __init__(self, store: Store, coordinator: Coordinator, layout: Layout) -> None:
        store.take_newest_checkpoint()
        self.coordinator = coordinator
        self.models = ModelFiles(store.folder / "models", layout)
        loaded = load_checkpoint(store, coordinator)
        self.number, self.epoch, self.now = loaded.number, loaded.epoch, loaded.now
        self.state = loaded.state
        self.history = loaded.history
        self.run_history = loaded.run_history
        self.files = UpdateFiles()
        self._folder = store.folder
        self._updates = UpdateFolder(store.folder / "updates", store.shared)
        # A kill may have left other versions incomplete, but not the best one, which is on disk before its row.
        best = store.log.newest_now(BEST)
        delete_files(self.models.forget({*loaded.versions, *_version_of(best and best.values)}))
        self.models.discard_pending()

    def apply(self, row: Row) -> None:
        """Make the change of the next row.

        Raises:
            OffbeatError: It does not follow from those before it.
            UnreachableError: Its update cannot be read now; nothing has changed.
        """
        if row.owner == COORDINATOR and row.blob is not None:
            self._updates.fetch(row.blob, row.digest or "")
        try:
            values = row.values
            self.state.apply(row, values)
            if row.owner == ACCOUNTS and row.name == "forget_client":
                self.history.forget(values["client"])
            if row.owner == COORDINATOR:
                self._call(row)
                self.now = max(self.now, values["now"])
            elif row.owner == CHECKPOINT:
                self._delete_covered(values["number"])
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            raise OffbeatError(
                f"{self._folder} is broken: row {row.number} of its log does not follow from those before it "
                f"({error}); restore a backup"
            ) from error
        self.number, self.epoch = row.number, row.epoch

    def _delete_covered(self, number: int) -> None:
        """Delete this server's files that another one's checkpoint covers."""
        needed = needed_versions(self.coordinator) | _version_of(self.state.best)
        checkpoints = self._folder / "checkpoints"
        # The shared one replaces them; what was deleted of a client may be in these.
        earlier = [checkpoints / f"{own}.safetensors" for own in numbers_of(checkpoints) if own < number]
        delete_files([*self.files.forget(number), *self.models.forget(needed), *earlier])

    def _call(self, row: Row) -> None:
        algorithm, visits = self.coordinator.algorithm, self.coordinator.visits
        call = call_of(row, self.coordinator, self._updates, self.models)
        if row.name == "assign":
            self.models.write(algorithm.version, algorithm.model, algorithm.down())
            self.models.publish(algorithm.version)
        assignment = visits.assignment(call.arguments["client"]) if row.name == "receive" else None
        self.coordinator.replay(call)
        self.run_history.note(call, self.coordinator)
        update = vector_of(call)
        if isinstance(update, StoredUpdate):
            self.files.add(row.number, update)
        if row.name == "grow":
            self.history.norms.grow(self.coordinator.clients)
        if assignment is None:
            return
        client, visit = assignment.client, assignment.visit
        has_counted = visits.has_counted(client, visit)
        self.history.digests.add(client, visit, row.digest or "", counted=has_counted)
        if (share := call.arguments.get("share")) is not None:
            self.history.keys.add(client, parse(share).binding.client)
        is_stored = isinstance(update, BufferedUpdate | StoredUpdate)
        if is_stored and has_counted and self.coordinator.participation is None:
            steps, reported = call.arguments["steps"], call.arguments["normaliser"]
            unit = norm_unit(algorithm.payload, assignment.plan, steps, reported)
            self.history.norms.add(client, norm_of(update) / unit)


def _version_of(best: dict[str, Any] | None) -> set[int]:
    return set() if best is None else {best["version"]}
