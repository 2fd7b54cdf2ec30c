"""The queues of trainers that work elsewhere; ``test_processes.py`` has more cases."""

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job, Result
from offbeat.training.trainers.distributed import worker_pool
from offbeat.training.trainers.distributed.worker_pool import WorkerPool
from tests.training.conftest import made
from tests.workloads import workload_of

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


class OneAfterTheOther(WorkerPool):
    """Trains a job whenever it waits; the result is the client's number, and client 9 kills its worker."""

    def __init__(self) -> None:
        data = {"inputs": torch.zeros(10, 4), "labels": torch.zeros(10), "shards": [np.arange(10)] * 10}
        super().__init__(
            workload_of(FlatModel(made(lambda: nn.Linear(4, 1))), loss=cross_entropy, **data, seed=3), places=1
        )
        self.begun: list[int] = []

    def _advance(self, timeout: float | None) -> None:
        if timeout == 0 or not (queue := self._next_queue()):
            return
        _, task = queue.popitem(last=False)
        self.begun.append(task.job.client)
        if task.job.client == 9:
            self._note_death(task, "actors", "signal 9")
            self._put_back(task)
        elif self._is_wanted(task):
            task.outcome = Result(torch.zeros(5), float(task.job.client))


def job(client: int, visit: int = 0) -> Job:
    return Job(client, visit, 0, torch.zeros(5), PLAN, "delta")


def test_collected_jobs_come_first_then_submitted_ones_in_order():
    trainer, jobs = OneAfterTheOther(), [job(client) for client in range(4)]
    for each in jobs[:3]:
        trainer.submit(each)
    trainer.cancel(jobs[0])
    assert [result.loss for result in trainer.train([jobs[2], jobs[3]])] == [2, 3]
    assert [result.loss for result in trainer.train([jobs[1], jobs[1]])] == [1, 1]
    assert trainer.begun == [2, 3, 1, 1]


def test_results_ahead_are_bounded(monkeypatch):
    monkeypatch.setattr(worker_pool, "_BYTES_AHEAD", 0)
    trainer = OneAfterTheOther()
    for client in range(4):
        trainer.submit(job(client))
    for _ in range(4):
        trainer._advance(None)
    assert trainer.begun == [0, 1]


def test_the_third_death_is_the_outcome():
    trainer = OneAfterTheOther()
    with pytest.raises(OffbeatError) as caught:
        trainer.train([job(9, 4)])
    assert str(caught.value) == (
        "client 9, visit 4: 3 actors that trained it were killed (signal 9), perhaps for lack of memory: "
        "use trainer = 'loop'"
    )
    assert trainer.begun == [9, 9, 9]
    assert trainer._next_queue() == {}


def test_close_withdraws_all_jobs():
    trainer = OneAfterTheOther()
    trainer.submit(job(1))
    trainer.close()
    assert not trainer._next_queue()
