"""The backend of several worker processes."""

import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import NamedTuple

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line

from offbeat.training.trainers.backend import Backend, Job, Result
from offbeat.training.trainers.distributed.packed_workload import pack_workload
from offbeat.training.trainers.distributed.shared_memory import RowTable, SharedMemory, share
from offbeat.training.trainers.distributed.worker import JobMessage, Reply, Worker, WorkerSetup
from offbeat.training.trainers.distributed.worker_pool import Task, WorkerPool
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.workload import Workload

_JOBS_PER_WORKER = 2  # one in training, and one so that the worker does not wait for the next; of batches one
_SMALLEST_SHARE = 3 / 8  # of the largest batch: smaller ones cost more per job than a worker's wait for them


class _Assignment(NamedTuple):
    """A worker's task with its rows in shared memory."""

    task: Task
    starts: list[int]  # of its starting model and its offset
    result: int


class _Workers:
    """The workers, their batches and their shared memory."""

    def __init__(self, memory: SharedMemory, setup: WorkerSetup) -> None:
        self.memory = memory
        self.setup = setup._replace(locations=memory.locations)
        self.starts = RowTable(memory["starts"])
        self.results = memory["results"]
        self.free = list(range(len(self.results)))
        # In the order of the workers' replies.
        self.assigned: dict[Worker, deque[list[_Assignment]]] = {}

    def assign(self, worker: Worker, tasks: Sequence[Task]) -> None:
        batch: list[_Assignment] = []
        messages: list[JobMessage] = []
        for task in tasks:
            job = task.job
            starts = [self.starts.take(vector) for vector in (job.start, job.offset) if vector is not None]
            result = self.free.pop()
            batch.append(_Assignment(task, starts, result))
            messages.append(
                JobMessage(job.client, job.visit, job.version, starts[0], result, job.plan, job.payload, *starts[1:])
            )
        self.assigned[worker].append(batch)
        worker.send(messages)

    def release(self, batch: Sequence[_Assignment]) -> None:
        for assignment in batch:
            for row in assignment.starts:
                self.starts.release(row)
            self.free.append(assignment.result)

    def end(self, owner: int) -> None:
        """End all workers, unless this process is a fork of their parent."""
        if os.getpid() == owner:
            for worker in self.assigned:
                worker.kill()
            self.memory.close()


class ProcessPool(WorkerPool):
    """Local training of several clients at once, in processes of one thread each.

    Processes start with the first job, also after ``close``. They have torch's defaults except for the number of
    threads. A worker has one batch of jobs at a time, or two jobs if its backend trains one after the other.

    Args:
        workload: What is trained; the model's values are not used.
        workers: The largest number of processes.
        make: Makes each worker's backend, whose ``batch_limit`` is the largest batch.

    Raises:
        OffbeatError: The model or the loss cannot be sent to another process, or the system is Windows.
    """

    def __init__(self, workload: Workload, *, workers: int, make: Callable[[Workload], Backend] = LoopBackend) -> None:
        if os.name == "nt":
            raise OffbeatError("trainer = 'processes' is for Linux and macOS: use 'loop'")
        packed = pack_workload(workload, "processes")
        local = make(workload)
        self.name, self._kernel, self._largest = local.name, local.kernel, local.batch_limit
        self._smallest = math.ceil(_SMALLEST_SHARE * self._largest)
        self._batches = _JOBS_PER_WORKER if self._largest == 1 else 1  # that a worker may have
        jobs, length = self._batches * workers * self._largest, len(workload.model.vector)
        super().__init__(workload, places=jobs)
        self._setup = WorkerSetup({}, packed._replace(tensors={}), make)
        self._tensors = {
            **packed.tensors,
            "starts": torch.empty(2 * jobs, length, device="meta"),  # starting models and offsets
            "results": torch.empty(jobs, length, device="meta"),
        }
        self._limit = workers
        self._workers: _Workers | None = None
        self._end: Callable[[], object] | None = None

    @property
    def kernel(self) -> str:
        """The name of the computation of a step, for reports."""
        return self._kernel

    def close(self) -> None:
        """End the processes and withdraw all jobs."""
        if self._end is not None:
            self._end()
        self._end = self._workers = None
        super().close()

    def submit(self, job: Job) -> None:
        """Begin with a job as soon as a worker has time for it, without waiting.

        Raises ``OffbeatError`` if no worker can be started.
        """
        self._get_task(job)
        if len(self._submitted) >= self._smallest:
            self._advance(0)

    def _advance(self, timeout: float | None) -> None:
        if self._workers is not None:
            ready = wait([worker.connection for worker in self._workers.assigned], timeout)
            for worker in [worker for worker in self._workers.assigned if worker.connection in ready]:
                self._handle_reply(self._workers, worker)
        while size := self._batch_size():
            try:
                workers = self._workers = self._workers or self._open_workers()
                worker = self._find_worker(workers)
            except OSError as error:
                problem = f"a process cannot be started ({error_line(error)})"
                raise OffbeatError(f"trainer = 'processes': {problem}: use 'loop'") from None
            if worker is None:
                return
            workers.assign(worker, self._take_batch(size))

    def _batch_size(self) -> int:
        """Return the size of the next batch; 0 if none should begin.

        Submitted jobs wait until they are enough for a batch, requested ones do not. Many are divided evenly.
        """
        if not self._next_queue():
            return 0
        waiting = len(self._requested) + len(self._submitted)
        if waiting < self._smallest and not self._requested:
            return 0
        return min(self._largest, max(self._smallest, math.ceil(waiting / self._limit)))

    def _open_workers(self) -> _Workers:
        workers = _Workers(share(self._tensors), self._setup)
        self._end = weakref.finalize(self, workers.end, os.getpid())
        return workers

    def _find_worker(self, workers: _Workers) -> Worker | None:
        """Return the worker with the fewest batches; None if all have enough.

        A new worker is preferred to a busy one.
        """
        assigned = workers.assigned
        least = min(assigned, key=lambda worker: len(assigned[worker]), default=None)
        if (least is None or assigned[least]) and len(assigned) < self._limit:
            least = Worker(workers.memory, workers.setup)
            assigned[least] = deque()
        return least if least is not None and len(assigned[least]) < self._batches else None

    def _handle_reply(self, workers: _Workers, worker: Worker) -> None:
        replies: list[Reply] | None = worker.receive()
        if replies is None:
            end, batches = worker.wait(), workers.assigned.pop(worker)
            for batch in reversed(batches):
                workers.release(batch)
            self._put_back([[task for task, *_ in batch] for batch in batches], "processes", end)
            return
        batch = workers.assigned[worker].popleft()
        for (task, _, row), reply in zip(batch, replies, strict=True):
            if self._is_wanted(task):
                if reply[0] == "done":
                    task.outcome = Result(workers.results[row].clone(), *reply[1:])
                elif reply[0] == "mistake":
                    task.outcome = OffbeatError(reply[1])
                else:
                    task.outcome = RuntimeError(f"a worker process failed:\n{reply[1]}")
        workers.release(batch)
