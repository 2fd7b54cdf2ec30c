"""The evaluated version with the best value of a metric, whose model is kept."""

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from offbeat_core.files import sync_file, sync_folder
from offbeat_core.serving.console_log import event

from offbeat.early_stop import BestMetric
from offbeat.service.log.log import BEST, Change
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.store.disk import Disk
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.store.server_state import ServerState
from offbeat.service.store.shared_files import SharedFiles, model_name

_RETRY_SECONDS = 1.0  # on a full disk, or without the store


class _Candidate(NamedTuple):
    version: int
    value: float


class BestKeeper:
    """Keeps the model of the best evaluated version.

    Its file is on disk, and in the shared files if there are any, before a row of the log says that it is the best: a
    server that is killed at any moment leaves a best version with its model.

    Args:
        metric: What is compared; the first of equal versions stays the best.
        state: The server's; ``best`` is that of the log.
        models: The files of versions.
        log_writer: Writes to the log.
        disk: Is told of failures.
        shared: The files that other servers have, too; None if there are none.

    Attributes:
        candidate: A version that is better than the best one in the log, whose file is not safe yet, or None.
    """

    def __init__(
        self,
        metric: BestMetric,
        state: ServerState,
        models: ModelFiles,
        log_writer: LogWriter,
        disk: Disk,
        shared: SharedFiles | None,
    ) -> None:
        self.candidate: _Candidate | None = None
        self._metric = metric
        self._state = state
        self._models = models
        self._log_writer = log_writer
        self._disk = disk
        self._shared = shared
        self._has_candidate = asyncio.Event()

    def note(self, version: int, values: Mapping[str, Any]) -> None:
        """Take an evaluation; one of a version whose model is gone changes nothing."""
        value = values.get(self._metric.name)
        if value is None or not math.isfinite(value) or not self._models.path(version).exists():
            return
        best = self._best()
        if best is None or (value < best if self._metric.lower_is_better else value > best):
            self.candidate = _Candidate(version, float(value))
            self._has_candidate.set()

    def _best(self) -> float | None:
        """Return the best value so far; None without one of this metric."""
        if self.candidate is not None:
            return self.candidate.value
        best = self._state.best
        return best["value"] if best is not None and best["metric"] == self._metric.name else None

    async def run(self) -> None:
        """Make the files of candidates safe, and enter them into the log; never returns."""
        while True:
            await self._has_candidate.wait()
            self._has_candidate.clear()
            while (found := self.candidate) is not None:
                try:
                    digest = await self._secure(found.version)
                except OSError as error:  # one that does not pass ends the server
                    self._disk.refusal(error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                if found is self.candidate:  # else there is a better one already
                    self._enter(found, digest)

    async def _secure(self, version: int) -> str:
        """Make a version's file safe; return its SHA-256."""
        path = self._models.path(version)
        digest = await asyncio.to_thread(self._sync, version, path)
        if self._shared is not None:
            await self._shared.upload(path, model_name(version, digest))
        return digest

    def _sync(self, version: int, path: Path) -> str:
        sync_file(path)
        sync_folder(path.parent)
        return self._models.digest(version)

    def _enter(self, found: _Candidate, digest: str) -> None:
        values = {"version": found.version, "metric": self._metric.name, "value": found.value, "sha256": digest}
        self.candidate, self._state.best = None, values
        self._log_writer.enter(Change(BEST, "keep", values))
        event("best_version", version=found.version, **{self._metric.name: found.value})
