"""The trainer of loky's processes that ``process_pools.py`` measures."""

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import torch
from loky import ProcessPoolExecutor

from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job, Result
from offbeat.training.trainers.distributed.packed_workload import pack_code, unpack_code
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.worker_process import keep_freed_memory
from offbeat.training.workload import Examples, Objective, Workload


class LokyTrainer:
    """The least code that trains in loky's processes.

    Workers hold the workload; jobs are pickled with their start vectors.
    """

    name = "loop"
    batch_limit = 1

    def __init__(self, workload: Workload, *, workers: int) -> None:
        self.workload = workload
        code = pack_code(workload.model.module, workload.objective.loss)
        self._executor = ProcessPoolExecutor(
            workers,
            initializer=_set_up,
            initargs=(code.numpy(), *(part.numpy() for part in workload.train), list(workload.shards), workload.seed),
            env={"OMP_NUM_THREADS": "1"},
        )
        self._results: dict[tuple[int, int], Future[tuple[np.ndarray, float]]] = {}

    def submit(self, job: Job) -> None:
        """Begin with a job."""
        self._results[job.key] = self._executor.submit(_train, job.start.numpy(), job._replace(start=torch.empty(0)))

    def collect(self, jobs: Sequence[Job]) -> list[Result]:
        """Return the results of jobs."""
        for job in jobs:
            if job.key not in self._results:
                self.submit(job)
        found = [self._results.pop(job.key).result() for job in jobs]
        return [Result(torch.from_numpy(vector), loss) for vector, loss in found]

    def cancel(self, job: Job) -> None:
        """Withdraw a job."""
        if job.key in self._results:
            self._results.pop(job.key).cancel()

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown(kill_workers=True)


_backend: LoopBackend | None = None  # of a process of loky


def _set_up(code: np.ndarray, inputs: np.ndarray, labels: np.ndarray, shards: list[np.ndarray], seed: int) -> None:
    global _backend
    torch.set_num_threads(1)
    keep_freed_memory()
    module, loss = unpack_code(torch.from_numpy(code))
    examples = Examples(torch.from_numpy(inputs), torch.from_numpy(labels))
    _backend = LoopBackend(Workload(FlatModel(module), Objective(loss), examples, shards, seed))


def _train(start: np.ndarray, job: Job) -> tuple[np.ndarray, float]:
    assert _backend is not None
    (result,) = _backend.train([job._replace(start=torch.from_numpy(start))])
    return result.vector.numpy(), result.loss
