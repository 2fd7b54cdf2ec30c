"""A trainer that switches to processes in long runs.

Starting them takes longer than a short run.
"""

import logging
import time
from collections.abc import Callable, Sequence

from offbeat_core.errors import OffbeatError

from offbeat.training.trainers.distributed.idle_cores import IdleCores
from offbeat.training.trainers.trainer import Job, Result, Trainer

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0  # of training, about the time to start processes
_IDLE_CORES = 0.5


class SwitchingTrainer(Trainer):
    """Trains in this process for the first two seconds, then in other processes.

    Where other programs keep the cores busy it stays in this process, and looks again every two seconds: processes that
    share a core wait for each other, and train several times as slowly as one alone. The time of the switch does not
    affect the results, since both trainers' results are bit-equal. ``start`` creates the trainer of other processes.
    """

    def __init__(self, local: Trainer, start: Callable[[], Trainer]) -> None:
        self.workload = local.workload
        self.name = local.name
        self._local = local
        self._remote: Trainer | None = None
        self._start: Callable[[], Trainer] | None = start
        self._seconds = 0.0
        self._idle: IdleCores | None = None
        self._submitted: dict[tuple[int, int], Job] = {}

    @property
    def kernel(self) -> str:
        """The name of the computation of a step, for reports."""
        return self._local.kernel

    @property
    def batch_limit(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The best number of jobs to train at once, by the trainer in use."""
        return (self._remote or self._local).batch_limit

    def collect(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its start.

        Raises the exceptions of the trainer in this process.
        """
        if self._remote is not None:
            try:
                return self._remote.collect(jobs)
            except OffbeatError as error:
                self._stay_local(error)
        self._idle = self._idle or IdleCores()
        began = time.monotonic()
        results = self._local.collect(jobs)
        self._seconds += time.monotonic() - began
        for job in jobs:
            self._submitted.pop(job.key, None)
        if self._start is not None and self._seconds > _PATIENCE_SECONDS:
            if self._idle.mean() >= _IDLE_CORES:
                self._switch(self._start)
            self._seconds, self._idle = 0.0, None
        return results

    def _switch(self, start: Callable[[], Trainer]) -> None:
        self._start = None
        try:
            self._remote = start()
            for job in self._submitted.values():
                self._remote.submit(job)
        except OffbeatError as error:
            self._stay_local(error)
        self._submitted.clear()

    def _stay_local(self, error: OffbeatError) -> None:
        """Give up processes, for instance for a lack of memory, and train in this one."""
        _log.warning("one process trains all clients: %s", error)
        self.close()
        self._remote = None

    def submit(self, job: Job) -> None:
        """Announce a job to the processes, or remember it until they exist."""
        if self._start is not None:
            self._submitted[job.key] = job
        elif self._remote is not None:
            try:
                self._remote.submit(job)
            except OffbeatError as error:
                self._stay_local(error)

    def cancel(self, job: Job) -> None:
        """Withdraw a job."""
        self._submitted.pop(job.key, None)
        if self._remote is not None:
            self._remote.cancel(job)

    def close(self) -> None:
        """End the processes, if there are any."""
        if self._remote is not None:
            self._remote.close()
