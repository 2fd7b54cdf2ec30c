"""The trainer of several worker processes."""

import os
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

import numpy as np
import torch

from offbeat.errors import OffbeatError
from offbeat.inputs import name_inputs
from offbeat.training.trainers.packed_code import pack_code
from offbeat.training.trainers.shared_memory import RowTable, SharedMemory, share
from offbeat.training.trainers.trainer import Job, Result, Trainer
from offbeat.training.trainers.worker import JobMessage, Worker, WorkerSetup
from offbeat.training.workload import Workload
from offbeat_client.user_code_errors import error_line

_JOBS_PER_WORKER = 2  # one in training, and one so that the worker does not wait for the next
_MAX_DEATHS = 3  # of workers with the same job, before it fails
_BYTES_AHEAD = 2**30  # of results that were not requested yet


@dataclass(eq=False, slots=True)
class _Task:
    job: Job
    requested: bool = False
    deaths: int = 0
    outcome: Result | Exception | None = None


@dataclass(eq=False, slots=True)
class _Assignment:
    """A worker's task with its rows in shared memory."""

    task: _Task
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

    def assign(self, worker: Worker, task: _Task) -> None:
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


class ProcessTrainer(Trainer):
    """Local SGD for several clients at once, in processes of one thread each.

    Results are bit-equal to those of ``LoopTrainer`` with one thread. Processes start with the first job, also after
    ``close``. They have torch's defaults except for the number of threads.

    A worker has at most two jobs. Collected jobs come first, then submitted ones in their order, as long as their
    results take less than a gigabyte.

    The model's values are not used. If the model or the loss cannot be sent to
    another process, or the system is Windows, ``OffbeatError`` is raised.
    """

    name = "loop"
    batch_limit = 1

    def __init__(self, workload: Workload, *, workers: int) -> None:
        if os.name == "nt":
            raise OffbeatError("trainer = 'processes' is for Linux and macOS: use 'loop'")
        model, shards = workload.model, workload.shards
        model.load(model.vector)  # resets the buffers
        jobs, length = _JOBS_PER_WORKER * workers, len(model.vector)
        self._tensors = {
            "code": pack_code(model.module, workload.objective.loss),
            **name_inputs("inputs", workload.train.inputs),
            "labels": workload.train.labels,
            "shards": torch.from_numpy(np.concatenate(shards)),
            "sizes": torch.tensor([len(shard) for shard in shards]),
            "starts": torch.empty(2 * jobs, length, device="meta"),  # starting models and offsets
            "results": torch.empty(jobs, length, device="meta"),
        }
        self.workload = workload
        self._workers = workers
        self._max_begun = max(2 * jobs, _BYTES_AHEAD // model.vector.nbytes)
        self._pool: _Pool | None = None
        self._end: Callable[[], object] | None = None
        # By the job's key: all tasks, and those that no worker has yet.
        self._tasks: dict[tuple[int, int], _Task] = {}
        self._requested: OrderedDict[tuple[int, int], _Task] = OrderedDict()
        self._submitted: OrderedDict[tuple[int, int], _Task] = OrderedDict()

    def submit(self, job: Job) -> None:
        """Begin with a job as soon as a worker has time for it, without waiting.

        Raises ``OffbeatError`` if no process can be started.
        """
        self._get_task(job)
        self._advance(0)

    def cancel(self, job: Job) -> None:
        """Withdraw a job, or drop its result."""
        for tasks in (self._tasks, self._requested, self._submitted):
            tasks.pop(job.key, None)

    def collect(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its start; expected jobs continue during and after this.

        Raises:
            OffbeatError: The model or the loss fails, or processes cannot be started or are killed repeatedly.
            RuntimeError: A worker failed in another way; the message is its traceback.
        """
        try:
            for job in jobs:
                self._request(job)
            return [self._result(job) for job in jobs]
        finally:
            for job in jobs:
                self.cancel(job)

    def close(self) -> None:
        """End the processes and withdraw all jobs."""
        if self._end is not None:
            self._end()
        self._end = self._pool = None
        for tasks in (self._tasks, self._requested, self._submitted):
            tasks.clear()

    def _get_task(self, job: Job) -> _Task:
        task = self._tasks.get(job.key)
        if task is None or not job.is_same(task.job):  # another run may have left a task of this key
            self.cancel(job)
            task = self._tasks[job.key] = self._submitted[job.key] = _Task(job)
        return task

    def _request(self, job: Job) -> _Task:
        task = self._get_task(job)
        task.requested = True
        if self._submitted.pop(job.key, None) is not None:
            self._requested[job.key] = task
        return task

    def _result(self, job: Job) -> Result:
        # Requested again, in case the same job occurs twice.
        task = self._request(job)
        self._advance(0)
        while task.outcome is None:
            self._advance(None)
        self.cancel(job)
        if isinstance(task.outcome, Exception):
            raise task.outcome
        return task.outcome

    def _advance(self, timeout: float | None) -> None:
        """Handle the workers' replies, and assign tasks to workers.

        Waits up to ``timeout`` seconds for the first reply; None means no limit.
        """
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

    def _next_queue(self) -> OrderedDict[tuple[int, int], _Task] | None:
        """Return the queue whose first task is next; None or empty if no task may begin."""
        begun = len(self._tasks) - len(self._requested) - len(self._submitted)
        return self._requested or (self._submitted if begun < self._max_begun else None)

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
            task = assigned[0].task
            task.deaths += 1
            if task.deaths == _MAX_DEATHS:
                task.outcome = OffbeatError(
                    f"client {task.job.client}, visit {task.job.visit}: {_MAX_DEATHS} processes that trained it were "
                    f"killed ({end}), perhaps for lack of memory: use trainer = 'loop'"
                )
        for assignment in reversed(assigned):
            pool.release(assignment)
            task = assignment.task
            if self._is_wanted(task) and task.outcome is None:
                queue = self._requested if task.requested else self._submitted
                queue[task.job.key] = task
                queue.move_to_end(task.job.key, last=False)

    def _is_wanted(self, task: _Task) -> bool:
        return self._tasks.get(task.job.key) is task
