"""The trainer for several processors: processes that each do what the plain trainer does."""

import os
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.errors import OffbeatError
from offbeat.training.augmentation import AugmentationName
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.shared_memory import Rows, SharedMemory, packed, share
from offbeat.training.trainers.trainer import Job, Result
from offbeat.training.trainers.worker import Order, Setup, Worker
from offbeat.user_code_errors import said

_PLACES = 2  # jobs a worker has at most: one in work, and one so that it need not wait for the next
_DEATHS = 3  # of workers on the same job, until it is given up
_BYTES_AHEAD = 2**30  # of results that nobody has asked for yet


@dataclass(eq=False, slots=True)
class _Task:
    job: Job
    asked: bool = False
    deaths: int = 0
    outcome: Result | Exception | None = None


class _Pool:
    """Workers, what each has to do, and what they share."""

    def __init__(self, memory: SharedMemory, seed: int, augmentation: AugmentationName | None) -> None:
        self.memory = memory
        self.setup = Setup(memory.places, seed, augmentation)
        self.starts = Rows(memory["starts"])
        self.results = memory["results"]
        self.free = list(range(len(self.results)))
        # The oldest first, as it answers: the task, the rows of its starting model and its offset, that of its result.
        self.given: dict[Worker, deque[tuple[_Task, list[int], int]]] = {}

    def release(self, starts: list[int], result: int) -> None:
        """Free the rows of a job."""
        for row in starts:
            self.starts.release(row)
        self.free.append(result)

    def end(self, owner: int) -> None:
        """End all workers, but not from a fork of the process that started them."""
        if os.getpid() == owner:
            for worker in self.given:
                worker.kill()
            self.memory.close()


class ProcessTrainer:
    """Local SGD for several clients at once, in processes of one thread each.

    Results are those of ``LoopTrainer`` with one thread, to the bit. The processes are started when there is
    something to do for them, also after ``close``. They have torch's own defaults, but for the number of threads.

    A worker has at most two jobs. Those that are asked for come first, then those that are expected, in order; no
    more of them are begun when their results would take more than a gigabyte.

    Args:
        model: Gives the module, the order of its parameters and its buffers; its values are not used.
        loss: Maps (outputs, labels) to the mean loss of a minibatch.
        inputs: All clients' training inputs, ``(n, …)``.
        labels: Their labels, ``(n, …)``.
        shards: For each client the indices of its examples, int64 ``(n_i,)``.
        seed: The run's seed.
        augmentation: How inputs are changed at random; None leaves them as they are.
        workers: How many processes, at least 1.

    Raises:
        OffbeatError: The model or the loss cannot be sent to another process, or this is Windows.
    """

    name = "loop"
    batch_limit = 1

    def __init__(
        self,
        model: FlatModel,
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        inputs: Tensor,
        labels: Tensor,
        shards: Sequence[NDArray[np.int64]],
        seed: int,
        augmentation: AugmentationName | None = None,
        workers: int,
    ) -> None:
        if os.name == "nt":
            raise OffbeatError("trainer = 'processes' is for Linux and macOS: take 'loop'")
        model.load(model.vector)  # the buffers as they were at first
        self._sizes = [len(shard) for shard in shards]
        places, length = _PLACES * workers, len(model.vector)
        self._tensors = {
            "code": packed(model.module, loss),
            "inputs": inputs,
            "labels": labels,
            "shards": torch.from_numpy(np.concatenate(shards)),
            "sizes": torch.tensor(self._sizes),
            "starts": torch.empty(2 * places, length, device="meta"),  # room for as many offsets
            "results": torch.empty(places, length, device="meta"),
        }
        self._seed = seed
        self._augmentation: AugmentationName | None = augmentation
        self._workers = workers
        self._ahead = max(2 * _PLACES * workers, _BYTES_AHEAD // model.vector.nbytes)
        self._pool: _Pool | None = None
        self._end: Callable[[], object] | None = None
        # By the identity of the job: all tasks, and those of them that no worker has yet.
        self._tasks: dict[int, _Task] = {}
        self._asked: OrderedDict[int, _Task] = OrderedDict()
        self._expected: OrderedDict[int, _Task] = OrderedDict()

    def examples(self, client: int) -> int:
        """Return how many examples n_i the client holds."""
        return self._sizes[client]

    def expect(self, job: Job) -> None:
        """Begin with a job as soon as a worker has nothing to do that is asked for; does not wait.

        Raises:
            OffbeatError: No process can be started.
        """
        self._task(job)
        self._pump(0)

    def forget(self, job: Job) -> None:
        """Do not begin with a job, or drop what came out of it."""
        for tasks in (self._tasks, self._asked, self._expected):
            tasks.pop(id(job), None)

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its own start; what else is expected goes on meanwhile and after.

        Raises:
            OffbeatError: The model or the loss fails, no process can be started, or they keep being killed.
            RuntimeError: A worker failed otherwise; the message is its traceback.
        """
        try:
            for job in jobs:
                self._ask(job)
            return [self._result(job) for job in jobs]
        finally:
            for job in jobs:
                self.forget(job)

    def close(self) -> None:
        """End the processes, and forget all that was expected."""
        if self._end is not None:
            self._end()
        self._end = self._pool = None
        for tasks in (self._tasks, self._asked, self._expected):
            tasks.clear()

    def _task(self, job: Job) -> _Task:
        if id(job) not in self._tasks:
            self._tasks[id(job)] = self._expected[id(job)] = _Task(job)
        return self._tasks[id(job)]

    def _ask(self, job: Job) -> _Task:
        task = self._task(job)
        task.asked = True
        if self._expected.pop(id(job), None) is not None:
            self._asked[id(job)] = task
        return task

    def _result(self, job: Job) -> Result:
        # Again, for a job that is asked for twice.
        task = self._ask(job)
        self._pump(0)
        while task.outcome is None:
            self._pump(None)
        self.forget(job)
        if isinstance(task.outcome, Exception):
            raise task.outcome
        return task.outcome

    def _pump(self, timeout: float | None) -> None:
        """Hear what workers have to say, waiting so many seconds for the first of them, and give them more to do."""
        if self._pool is not None:
            speaking = wait([worker.connection for worker in self._pool.given], timeout)
            for worker in [worker for worker in self._pool.given if worker.connection in speaking]:
                self._hear(self._pool, worker)
        while queue := self._next():
            try:
                pool = self._pool = self._pool or self._opened()
                worker = self._with_room(pool)
            except OSError as error:
                problem = f"a process cannot be started ({said(error)})"
                raise OffbeatError(f"trainer = 'processes': {problem}: take 'loop'") from None
            if worker is None:
                return
            self._give(pool, worker, queue.popitem(last=False)[1])

    def _next(self) -> OrderedDict[int, _Task] | None:
        """Return the tasks of which the first is next, or nothing."""
        begun = len(self._tasks) - len(self._asked) - len(self._expected)
        return self._asked or (self._expected if begun < self._ahead else None)

    def _opened(self) -> _Pool:
        pool = _Pool(share(self._tensors), self._seed, self._augmentation)
        self._end = weakref.finalize(self, pool.end, os.getpid())
        return pool

    def _with_room(self, pool: _Pool) -> Worker | None:
        """Return the worker with the least to do; a new one rather than one that has something; none if all have."""
        given = pool.given
        least = min(given, key=lambda worker: len(given[worker]), default=None)
        if (least is None or given[least]) and len(given) < self._workers:
            least = Worker(pool.memory, pool.setup)
            given[least] = deque()
        return least if least is not None and len(given[least]) < _PLACES else None

    def _give(self, pool: _Pool, worker: Worker, task: _Task) -> None:
        job = task.job
        rows = [pool.starts.take(vector) for vector in (job.start, job.offset) if vector is not None]
        result = pool.free.pop()
        pool.given[worker].append((task, rows, result))
        worker.give(Order(job.client, job.visit, job.version, rows[0], result, job.plan, job.payload, *rows[1:]))

    def _hear(self, pool: _Pool, worker: Worker) -> None:
        answer = worker.hear()
        if answer is None:
            self._bury(pool, worker)
            return
        task, rows, result = pool.given[worker].popleft()
        if self._is_wanted(task):
            if answer[0] == "done":
                task.outcome = Result(pool.results[result].clone(), answer[1])
            elif answer[0] == "mistake":
                task.outcome = OffbeatError(answer[1])
            else:
                task.outcome = RuntimeError(f"a worker process failed:\n{answer[1]}")
        pool.release(rows, result)

    def _bury(self, pool: _Pool, worker: Worker) -> None:
        """Take what a dead worker had to do, to be done again; the job that it was at may be to blame."""
        how = worker.wait()
        given = pool.given.pop(worker)
        if given:
            task = given[0][0]
            task.deaths += 1
            if task.deaths == _DEATHS:
                task.outcome = OffbeatError(
                    f"client {task.job.client}, visit {task.job.visit}: {_DEATHS} processes that trained it were "
                    f"killed ({how}), perhaps for want of memory: take trainer = 'loop'"
                )
        for task, rows, result in reversed(given):
            pool.release(rows, result)
            if self._is_wanted(task) and task.outcome is None:
                queue = self._asked if task.asked else self._expected
                queue[id(task.job)] = task
                queue.move_to_end(id(task.job), last=False)

    def _is_wanted(self, task: _Task) -> bool:
        return self._tasks.get(id(task.job)) is task
