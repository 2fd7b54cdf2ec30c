import logging

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan
from offbeat_core.user_code_errors import user_code

from offbeat.training.flat_model import FlatModel
from offbeat.training.models import initial_randomness
from offbeat.training.trainers.smaller_batches import SmallerBatches
from offbeat.training.trainers.trainer import Job, Result, Trainer
from offbeat.training.workload import Examples, Objective, Workload

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


class Small(Trainer):
    """A trainer whose memory has room for some jobs only."""

    name, kernel = "small", "small"

    def __init__(self, room, wraps=False, batch_limit=8):
        labels = torch.zeros(1)
        with initial_randomness(1):
            model = FlatModel(torch.nn.Linear(1, 1))
        self.workload = Workload(model, Objective(torch.nn.functional.mse_loss), Examples(labels, labels), [], 1)
        self.batch_limit, self.room, self.wraps, self.batches, self.closed = batch_limit, room, wraps, [], False

    def collect(self, jobs):
        self.batches.append(len(jobs))
        if len(jobs) > self.room:
            if not self.wraps:
                raise torch.OutOfMemoryError("CUDA out of memory")
            with user_code("client 0: the model failed"):
                raise torch.OutOfMemoryError("CUDA out of memory")
        return [Result(torch.full((2,), float(job.client)), float(job.client)) for job in jobs]

    def close(self):
        self.closed = True


def jobs(number):
    return [Job(client, 0, 0, torch.zeros(2), PLAN, "delta") for client in range(number)]


@pytest.mark.parametrize("wraps", [False, True], ids=["as it is", "as a user's error"])
def test_half_the_batch_is_tried_until_it_fits(wraps, caplog):
    small = Small(room=3, wraps=wraps)
    trainer = SmallerBatches(small)
    with caplog.at_level(logging.WARNING):
        results = trainer.collect(jobs(7))
    assert [result.loss for result in results] == list(np.arange(7.0))
    assert small.batches == [7, 4, 2, 2, 2, 1]
    assert trainer.batch_limit == small.batch_limit == 2
    assert [note.partition(":")[0] for note in trainer.notes] == [
        "out of memory with 8 clients at once",
        "out of memory with 4 clients at once",
    ]
    assert caplog.messages == [f"cpu: {note}" for note in trainer.notes]


def test_one_client_that_does_not_fit_is_one_line():
    with pytest.raises(OffbeatError, match=r"one client does not fit into the memory of cpu: lower local\.batch_size"):
        SmallerBatches(Small(room=0)).collect(jobs(2))


def test_other_errors_and_facts_are_those_of_the_trainer(monkeypatch):
    small = Small(room=9)
    trainer = SmallerBatches(small)
    assert (trainer.name, trainer.kernel, trainer.batch_limit, trainer.notes) == ("small", "small", 8, [])
    assert trainer.workload is small.workload

    def fail(jobs):
        raise OffbeatError("a mistake")

    monkeypatch.setattr(small, "collect", fail)
    with pytest.raises(OffbeatError, match="a mistake"):
        trainer.collect(jobs(1))
    trainer.close()
    assert small.closed
