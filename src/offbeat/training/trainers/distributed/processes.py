"""The trainer of several worker processes."""

import os
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait

import numpy as np
import torch

from offbeat.errors import OffbeatError
from offbeat.inputs import name_inputs
from offbeat.training.trainers.distributed.packed_code import pack_code
from offbeat.training.trainers.distributed.queued_trainer import QueuedTrainer, Task
from offbeat.training.trainers.distributed.shared_memory import RowTable, SharedMemory, share
from offbeat.training.trainers.distributed.worker import JobMessage, Worker, WorkerSetup
from offbeat.training.trainers.trainer import Result
from offbeat.training.workload import Workload
from offbeat_client.user_code_errors import error_line

_JOBS_PER_WORKER = 2  # one in training, and one so that the worker does not wait for the next


@dataclass(eq=False, slots=True)
class _Assignment:
    """A worker's task with its rows in shared memory."""

    task: Task
    starts: list[int]  # of its starting model and its offset
    result: int


class _Pool:
    """The workers, their assignments and their shared memory."""

    def __init__(self, memory: SharedMemory, workload: Workload) -> None:
        self.memory = memory
        self.setup = WorkerSetup(memory.locations, workload.seed, workload.augmentation, workload.accelerator)
        self.starts = RowTable(memory["starts"])
        self.results = memory["results"]
        self.free = list(range(len(self.results)))
        # In the order of the workers' replies.
        self.assigned: dict[Worker, deque[_Assignment]] = {}

    def assign(self, worker: Worker, task: Task) -> None:
        job = task.job
        starts = [self.starts.take(vector) for vector in (job.start, job.offset) if vector is not None]
        result = self.free.pop()
        self.assigned[worker].append(_Assignment(task, starts, result))
        worker.send(
            JobMessage(job.client, job.visit, job.version, starts[0], result, job.plan, job.payload, *starts[1:])
        )

    def release(self, assignment: _Assignment) -> None:
        for row in assignment.starts:
            self.starts.release(row)
        self.free.append(assignment.result)

    def end(self, owner: int) -> None:
        """End all workers, unless this process is a fork of their parent."""
        if os.getpid() == owner:
            for worker in self.assigned:
                worker.kill()
            self.memory.close()


class ProcessTrainer(QueuedTrainer):
    """Local SGD for several clients at once, in processes of one thread each.

    Processes start with the first job, also after ``close``. They have torch's defaults except for the number of
    threads. A worker has at most two jobs.

    The model's values are not used. If the model or the loss cannot be sent to another process, or the system is
    Windows, ``OffbeatError`` is raised.
    """

    def __init__(self, workload: Workload, *, workers: int) -> None:
        if os.name == "nt":
            raise OffbeatError("trainer = 'processes' is for Linux and macOS: use 'loop'")
        model, shards = workload.model, workload.shards
        model.load(model.vector)  # resets the buffers
        jobs, length = _JOBS_PER_WORKER * workers, len(model.vector)
        super().__init__(workload, places=jobs)
        self._tensors = {
            "code": pack_code(model.module, workload.objective.loss),
            **name_inputs("inputs", workload.train.inputs),
            "labels": workload.train.labels,
            "shards": torch.from_numpy(np.concatenate(shards)),
            "sizes": torch.tensor([len(shard) for shard in shards]),
            "starts": torch.empty(2 * jobs, length, device="meta"),  # starting models and offsets
            "results": torch.empty(jobs, length, device="meta"),
        }
        self._workers = workers
        self._pool: _Pool | None = None
        self._end: Callable[[], object] | None = None

    def close(self) -> None:
        """End the processes and withdraw all jobs."""
        if self._end is not None:
            self._end()
        self._end = self._pool = None
        super().close()

    def _advance(self, timeout: float | None) -> None:
        if self._pool is not None:
            ready = wait([worker.connection for worker in self._pool.assigned], timeout)
            for worker in [worker for worker in self._pool.assigned if worker.connection in ready]:
                self._handle_reply(self._pool, worker)
        while queue := self._next_queue():
            try:
                pool = self._pool = self._pool or self._open_pool()
                worker = self._find_worker(pool)
            except OSError as error:
                problem = f"a process cannot be started ({error_line(error)})"
                raise OffbeatError(f"trainer = 'processes': {problem}: use 'loop'") from None
            if worker is None:
                return
            pool.assign(worker, queue.popitem(last=False)[1])

    def _open_pool(self) -> _Pool:
        pool = _Pool(share(self._tensors), self.workload)
        self._end = weakref.finalize(self, pool.end, os.getpid())
        return pool

    def _find_worker(self, pool: _Pool) -> Worker | None:
        """Return the worker with the fewest jobs; None if all have enough.

        A new worker is preferred to a busy one.
        """
        assigned = pool.assigned
        least = min(assigned, key=lambda worker: len(assigned[worker]), default=None)
        if (least is None or assigned[least]) and len(assigned) < self._workers:
            least = Worker(pool.memory, pool.setup)
            assigned[least] = deque()
        return least if least is not None and len(assigned[least]) < _JOBS_PER_WORKER else None

    def _handle_reply(self, pool: _Pool, worker: Worker) -> None:
        reply = worker.receive()
        if reply is None:
            self._handle_death(pool, worker)
            return
        assignment = pool.assigned[worker].popleft()
        task = assignment.task
        if self._is_wanted(task):
            if reply[0] == "done":
                task.outcome = Result(pool.results[assignment.result].clone(), reply[1])
            elif reply[0] == "mistake":
                task.outcome = OffbeatError(reply[1])
            else:
                task.outcome = RuntimeError(f"a worker process failed:\n{reply[1]}")
        pool.release(assignment)

    def _handle_death(self, pool: _Pool, worker: Worker) -> None:
        """Put a dead worker's tasks back into the queues.

        The first of them may have caused the death.
        """
        end = worker.wait()
        assigned = pool.assigned.pop(worker)
        if assigned:
            self._note_death(assigned[0].task, "processes", end)
        for assignment in reversed(assigned):
            pool.release(assignment)
            self._put_back(assignment.task)
