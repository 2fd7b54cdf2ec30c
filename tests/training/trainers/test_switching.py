import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.errors import OffbeatError
from offbeat.training.trainers import switching
from offbeat.training.trainers.switching import SwitchingTrainer
from offbeat.training.trainers.trainer import Job, Result, Trainer

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


class Recording(Trainer):
    """Records calls; a job takes a number of seconds."""

    name = "loop"
    batch_limit = 1

    def __init__(self, place, log, clock, seconds):
        self.place, self.log, self.clock, self.seconds = place, log, clock, seconds

    def examples(self, client):
        return 10 * client

    def train(self, jobs):
        self.clock[0] += self.seconds * len(jobs)
        self.log.extend((self.place, "train", job.client) for job in jobs)
        return [Result(torch.zeros(1), float(job.client)) for job in jobs]

    def expect(self, job):
        self.log.append((self.place, "expect", job.client))

    def forget(self, job):
        self.log.append((self.place, "forget", job.client))

    def close(self):
        self.log.append((self.place, "close", None))


@pytest.fixture
def world(monkeypatch):
    """Return a function that makes a trainer, 0.9 s per job before it has processes, and its log."""
    clock, log = [0.0], []
    monkeypatch.setattr(switching.time, "monotonic", lambda: clock[0])

    def make(kind=Recording, seconds=0.9):
        local = Recording("local", log, clock, seconds)
        return SwitchingTrainer(local, lambda: kind("remote", log, clock, seconds)), log

    return make


JOBS = [Job(client, 0, 0, torch.zeros(1), PLAN, "delta") for client in range(8)]


def test_processes_take_over_when_training_has_taken_two_seconds(world):
    trainer, log = world()
    assert trainer.examples(3) == 30
    trainer.close()  # no processes to end
    for job in JOBS[:5]:
        assert [result.loss for result in trainer.train([job])] == [job.client]
    assert log == [(place, "train", client) for client, place in enumerate(["local"] * 3 + ["remote"] * 2)]


def test_processes_are_told_the_expected_jobs(world):
    trainer, log = world()
    for job in JOBS[:6]:
        trainer.expect(job)
    trainer.forget(JOBS[4])
    trainer.train([JOBS[1], JOBS[3]])
    trainer.train([JOBS[0]])
    assert log[-2:] == [("remote", "expect", 2), ("remote", "expect", 5)]
    trainer.expect(JOBS[6])
    trainer.forget(JOBS[2])
    trainer.close()
    assert log[-3:] == [("remote", "expect", 6), ("remote", "forget", 2), ("remote", "close", None)]
    assert trainer.examples(3) == 30


class Failing(Recording):
    """A trainer whose processes fail."""

    def train(self, jobs):
        raise OffbeatError("killed")

    def expect(self, job):
        if job is JOBS[7]:
            raise OffbeatError("no process")
        super().expect(job)


@pytest.mark.parametrize("how", ["train", "expect"])
def test_when_processes_fail_this_one_continues(how, world, caplog):
    trainer, log = world(Failing, seconds=3.0)
    trainer.train(JOBS[:1])
    if how == "expect":
        trainer.expect(JOBS[6])
        trainer.expect(JOBS[7])
    for job in JOBS[1:4]:
        assert trainer.train([job])[0].loss == job.client
    trainer.expect(JOBS[5])
    trainer.close()
    before = [("remote", "expect", 6)] if how == "expect" else []
    trained = [("local", "train", client) for client in range(1, 4)]
    assert log == [("local", "train", 0), *before, ("remote", "close", None), *trained]
    assert len(caplog.records) == 1


def test_without_processes_this_one_continues(world, caplog):
    def fail(*_):
        raise OffbeatError("the loss cannot be sent")

    trainer, log = world(fail)
    trainer.expect(JOBS[7])
    for job in JOBS[:6]:
        trainer.train([job])
    trainer.expect(JOBS[7])
    trainer.close()
    assert log == [("local", "train", client) for client in range(6)]
    assert [record.getMessage() for record in caplog.records] == [
        "one process trains all clients: the loss cannot be sent"
    ]
