"""Publication of the model's versions."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from offbeat_core.serving.console_log import event

from offbeat.coordinator import Coordinator
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluations
from offbeat.service.engine.evaluation_queue import EvaluationQueue
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.store.disk import Disk
from offbeat.service.store.model_files import ModelFiles

T = TypeVar("T")


class VersionPublisher:
    """A writer of versions, published once the log's rows behind them are on disk.

    A version is made from the updates in its sum, and only when it is needed. One thread makes all versions, so that
    vectors are always added in the same order. The caller holds the engine's lock, which may be free while a version is
    made: the algorithm goes on, and the version stays what it was when its making began.

    Attributes:
        problem: The reason why the newest version cannot be written; None if it can.
        due: The versions to be evaluated, oldest first.
        evaluations: Evaluates some of the versions; None for none.
        client_evaluations: Has some of the versions evaluated by clients; None for none.
    """

    def __init__(self, coordinator: Coordinator, models: ModelFiles, log_writer: LogWriter, disk: Disk) -> None:
        self.problem: str | None = None
        self.due: list[int] = []
        self.evaluations: EvaluationQueue | None = None
        self.client_evaluations: ClientEvaluations | None = None
        self._algorithm = coordinator.algorithm
        self._models = models
        self._log_writer = log_writer
        self._disk = disk
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aggregator")
        self._making: dict[int, asyncio.Task[None]] = {}  # by version
        self._last_published = -1
        self._last_due = self._algorithm.version
        self._reported_steps = len(self._algorithm.refused_steps)

    @property
    def is_behind(self) -> bool:
        """True if the newest version is not written yet."""
        return self._algorithm.version != self._last_published

    async def publish(self, version: int | None = None) -> None:
        """Write a version, the newest by default; publish it once the log is on disk.

        Raises:
            Refusal: The version cannot be written, or its updates cannot be read.
        """
        if version is None:
            version = self._algorithm.version
        if version in self._making or version > self._last_published:
            await asyncio.shield(self._begin(version))

    def _begin(self, version: int) -> "asyncio.Task[None]":
        """Begin to write a version, while it is the newest, unless that has begun."""
        task = self._making.get(version)
        if task is None:
            written = asyncio.get_running_loop().run_in_executor(self._thread, self._write, version)
            task = self._making[version] = asyncio.create_task(self._publish(version, written))
            task.add_done_callback(lambda task: task.cancelled() or task.exception())  # if nobody waits any more
        return task

    async def _publish(self, version: int, written: "asyncio.Future[bool]") -> None:
        try:
            if await written:
                self._log_writer.run_once_durable(lambda: self._models.publish(version))
                self._last_published = version
            self.problem = None
            self._log_refused_steps()
        except OSError as error:
            self.problem = f"version {version} cannot be made: {error.strerror or error}"
            raise self._disk.refusal(error) from None
        finally:
            del self._making[version]

    def _write(self, version: int) -> bool:
        """Write a version; return False if it is too late, as a later one was read."""
        algorithm = self._algorithm
        with algorithm.at(version) as is_in_time:
            if is_in_time:
                self._models.write(version, algorithm.model, algorithm.down())
        return is_in_time

    def note_due(self) -> None:
        """Begin to write the newest version if it is to be evaluated."""
        version = self._algorithm.version
        if version > self._last_due:
            self._last_due = version
            if any(one is not None and one.wants(version) for one in (self.evaluations, self.client_evaluations)):
                self.due.append(version)
                self._begin(version)

    def evaluate(self, version: int) -> list[int]:
        """Have a written version that is due evaluated; return the clients for it."""
        if version not in self.due:  # another request was faster
            return []
        self.due.remove(version)
        queue, clients = self.evaluations, self.client_evaluations
        try:
            self._models.digest(version)
            if queue is not None and queue.wants(version):
                queue.add(version)
        except OSError as error:  # which must not keep clients from their work
            event("evaluation_failed", logging.WARNING, version=version, problem=error.strerror)
            return []
        return clients.begin(version) if clients is not None and clients.wants(version) else []

    async def aggregate(self, work: Callable[[], T]) -> T:
        """Do work that may add up vectors in the thread for it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _log_refused_steps(self) -> None:
        refused = self._algorithm.refused_steps
        for version, problem in list(refused.items())[self._reported_steps :]:
            event("step_refused", logging.WARNING, version=version, problem=problem)
            self._reported_steps += 1
