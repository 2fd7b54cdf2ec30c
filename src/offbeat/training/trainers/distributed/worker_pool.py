"""The base of backends whose jobs wait for processes or machines."""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from offbeat_core.errors import OffbeatError

from offbeat.training.trainers.backend import Backend, Job, Result
from offbeat.training.workload import Workload

_MAX_DEATHS = 3  # of workers with the same job, before it fails
_BYTES_AHEAD = 2**30  # of results that were not requested yet


@dataclass(eq=False, slots=True)
class Task:
    """A job on its way to a result or an error."""

    job: Job
    requested: bool = False
    deaths: int = 0
    outcome: Result | Exception | None = None


class WorkerPool(Backend):
    """Local training elsewhere, bit-equal to that of a backend here with one thread.

    Jobs to train come first, then submitted ones in their order, as long as their results take less than a gigabyte.
    ``places`` is the number of jobs that may be elsewhere at once.
    """

    name = "loop"
    batch_limit = 1  # submitted jobs fill the batches

    def __init__(self, workload: Workload, *, places: int) -> None:
        self.workload = workload
        self._places = places
        # By the job's key: all tasks, and those that no worker has yet.
        self._tasks: dict[tuple[int, int], Task] = {}
        self._requested: OrderedDict[tuple[int, int], Task] = OrderedDict()
        self._submitted: OrderedDict[tuple[int, int], Task] = OrderedDict()

    @abstractmethod
    def _advance(self, timeout: float | None) -> None:
        """Handle replies, and assign tasks from ``_next_queue``.

        Waits up to ``timeout`` seconds for the first reply; None means no limit.
        """
        ...

    def submit(self, job: Job) -> None:
        """Begin with a job as soon as a worker has time for it, without waiting.

        Raises ``OffbeatError`` if no worker can be started.
        """
        self._get_task(job)
        self._advance(0)

    def cancel(self, job: Job) -> None:
        """Withdraw a job, or drop its result."""
        key = job.key
        if self._tasks.pop(key, None) is not None:
            self._requested.pop(key, None)
            self._submitted.pop(key, None)

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its start; expected jobs continue during and after this.

        Raises:
            OffbeatError: The model or the loss fails, or workers cannot be started or die repeatedly.
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
        """Withdraw all jobs."""
        for tasks in (self._tasks, self._requested, self._submitted):
            tasks.clear()

    def _get_task(self, job: Job) -> Task:
        key = job.key
        task = self._tasks.get(key)
        if task is None or not job.is_same(task.job):  # another run may have left a task of this key
            self.cancel(job)
            task = self._tasks[key] = self._submitted[key] = Task(job)
        return task

    def _request(self, job: Job) -> Task:
        task = self._get_task(job)
        task.requested = True
        key = job.key
        if self._submitted.pop(key, None) is not None:
            self._requested[key] = task
        return task

    def _result(self, job: Job) -> Result:
        # Requested again, in case the same job occurs twice.
        task = self._request(job)
        if task.outcome is None:
            self._advance(0)
        while task.outcome is None:
            self._advance(None)
        self.cancel(job)
        if isinstance(task.outcome, Exception):
            raise task.outcome
        return task.outcome

    def _next_queue(self) -> OrderedDict[tuple[int, int], Task] | None:
        """Return the queue whose first task is next; None or empty if no task may begin."""
        begun = len(self._tasks) - len(self._requested) - len(self._submitted)
        max_begun = max(2 * self._places, _BYTES_AHEAD // self.workload.model.vector.nbytes)
        return self._requested or (self._submitted if begun < max_begun else None)

    def _take_batch(self, size: int) -> list[Task]:
        """Return the next tasks, at most ``size``.

        A task whose worker has died is alone.
        """
        batch: list[Task] = []
        while len(batch) < size and (queue := self._next_queue()):
            key = next(iter(queue))
            if queue[key].deaths and batch:
                break
            batch.append(queue.pop(key))
            if batch[0].deaths:
                break
        return batch

    def _put_back(self, batches: Sequence[Sequence[Task]], workers: str, end: str) -> None:
        """Put a dead worker's tasks back at the front of the queues, in their order.

        Those of its first batch may have caused the death. The third is a task's outcome.
        """
        for task in batches[0] if batches else ():
            task.deaths += 1
            if task.deaths == _MAX_DEATHS:
                job = task.job
                task.outcome = OffbeatError(
                    f"client {job.client}, visit {job.visit}: {_MAX_DEATHS} {workers} that trained it were killed "
                    f"({end}), perhaps for lack of memory: use trainer = 'loop'"
                )
        for task in reversed([task for batch in batches for task in batch]):
            if self._is_wanted(task) and task.outcome is None:
                queue = self._requested if task.requested else self._submitted
                queue[task.job.key] = task
                queue.move_to_end(task.job.key, last=False)

    def _is_wanted(self, task: Task) -> bool:
        return self._tasks.get(task.job.key) is task
