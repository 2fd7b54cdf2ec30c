"""The trainer of a run, for which a backend trains the submitted jobs."""

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from offbeat_core.errors import OffbeatError

from offbeat.training.trainers.backend import Backend, Job, Result
from offbeat.training.workload import Workload

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0  # of training, about the time to start processes
_IDLE_CORES = 0.5
_STATISTICS = Path("/proc/stat")  # Linux


class Trainer:
    """Local training of clients by a backend; a job is known by its client and visit.

    If a GPU's memory does not suffice for a batch, batches are halved: the results of smaller ones may differ in their
    last bits.

    Where processes can be started, the first two seconds of training are in this process, since starting them takes
    longer than a short run. While other programs keep the cores busy the trainer stays here, and looks again every two
    seconds: processes that share a core wait for each other, and train several times as slowly as one alone. The time
    of the switch does not affect the results, since both backends' are bit-equal. If the processes fail, for instance
    for lack of memory, this one continues.

    Args:
        backend: What trains.
        start_processes: Makes the backend that takes over in a long run; None if there is none.
    """

    def __init__(self, backend: Backend, start_processes: Callable[[], Backend] | None = None) -> None:
        self.backend = backend
        self._here = backend
        self._start_processes = start_processes
        self._submitted: dict[tuple[int, int], Job] = {}  # by the job's key, until there are processes
        self._seconds = 0.0
        self._cores: _Cores | None = None
        self._notes: list[str] = []

    @property
    def workload(self) -> Workload:
        """The workload of the backend."""
        return self.backend.workload

    @property
    def name(self) -> str:
        """Results of trainers of one name are bit-equal; of others, up to rounding."""
        return self.backend.name

    @property
    def kernel(self) -> str:
        """The name of the computation of a step, for reports."""
        return self.backend.kernel

    @property
    def batch_limit(self) -> int:
        """The best number of jobs to collect at once."""
        return self.backend.batch_limit

    @property
    def keeps_states(self) -> bool:
        """True if jobs need the states of clients; see ``Backend``."""
        return self.backend.keeps_states

    @property
    def notes(self) -> Sequence[str]:
        """Lines for the user, for instance that memory ran out."""
        return [*self.backend.notes, *self._notes]

    def submit(self, job: Job) -> None:
        """Announce a job that will probably be collected.

        Idle processes may begin with it.
        """
        if self._start_processes is not None:
            self._submitted[job.key] = job
            return
        try:
            self.backend.submit(job)
        except OffbeatError as error:
            if self.backend is self._here:
                raise
            self._stay_here(error)

    def collect(self, jobs: Sequence[Job]) -> list[Result]:
        """Return the results of jobs, in their order; see ``Backend.train``.

        Raises ``OffbeatError`` if the model or the loss fails, or a single job does not fit into the memory.
        """
        if self.backend is not self._here:
            try:
                return self.backend.train(jobs)
            except OffbeatError as error:
                self._stay_here(error)
        if self._start_processes is None:
            return self._train_what_fits(jobs)
        self._cores = self._cores or _Cores()
        began = time.monotonic()
        results = self._train_what_fits(jobs)
        self._seconds += time.monotonic() - began
        for job in jobs:
            self._submitted.pop(job.key, None)
        if self._seconds > _PATIENCE_SECONDS:
            if self._cores.mean_idle() >= _IDLE_CORES:
                self._move(self._start_processes)
            self._seconds, self._cores = 0.0, None
        return results

    def cancel(self, job: Job) -> None:
        """Withdraw a job; it need not have been submitted."""
        self._submitted.pop(job.key, None)
        self.backend.cancel(job)

    def close(self) -> None:
        """End the backend's processes, if it has any."""
        self.backend.close()

    def _train_what_fits(self, jobs: Sequence[Job]) -> list[Result]:
        while True:
            try:
                return self.backend.train(jobs)
            except (OffbeatError, torch.OutOfMemoryError) as error:
                if not isinstance(error, torch.OutOfMemoryError) and not isinstance(
                    error.__cause__, torch.OutOfMemoryError
                ):
                    raise
            self._halve_batches()  # after the exception, which holds on to the tensors of the batch

    def _halve_batches(self) -> None:
        torch.cuda.empty_cache()
        device, limit = self.workload.accelerator.device, self.batch_limit
        if limit == 1:
            raise OffbeatError(f"one client does not fit into the memory of {device}: lower local.batch_size")
        self.backend.batch_limit = limit // 2
        note = f"out of memory with {limit} clients at once: went on with {limit // 2}"
        self._notes.append(note)
        _log.warning("%s: %s", device, note)

    def _move(self, start_processes: Callable[[], Backend]) -> None:
        """Let processes train from now on."""
        self._start_processes = None
        try:
            self.backend = start_processes()
            for job in self._submitted.values():
                self.backend.submit(job)
        except OffbeatError as error:
            self._stay_here(error)
        self._submitted.clear()

    def _stay_here(self, error: OffbeatError) -> None:
        """Give up processes, and train in this one."""
        _log.warning("one process trains all clients: %s", error)
        if self.backend is not self._here:
            self.backend.close()
        self.backend = self._here


class _Cores:
    """The machine's cores since this was made."""

    def __init__(self) -> None:
        self._began, self._idle = time.monotonic(), _idle_seconds()

    def mean_idle(self) -> float:
        """Return the mean number of idle cores; infinity where the system does not tell."""
        idle, seconds = _idle_seconds(), time.monotonic() - self._began
        if idle is None or self._idle is None or seconds <= 0:
            return math.inf
        return (idle - self._idle) / seconds


def _idle_seconds() -> float | None:
    """Return the idle time of all cores together since the start of the machine."""
    try:
        _, _, _, _, idle, *_ = _STATISTICS.read_text(encoding="ascii").split(maxsplit=5)
        return int(idle) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
