import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.errors import OffbeatError
from offbeat.training.trainers import late_processes
from offbeat.training.trainers.late_processes import LateProcesses
from offbeat.training.trainers.trainer import Job, Result

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


class Recording:
    """Says who trained what, and takes so many seconds for it."""

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
    """A trainer that takes 0.9 s a job before it has processes, and what it does."""
    clock, log = [0.0], []
    monkeypatch.setattr(late_processes.time, "monotonic", lambda: clock[0])
    here, there = (Recording(place, log, clock, 0.9) for place in ("here", "there"))
    return LateProcesses(here, lambda: there), log


JOBS = [Job(client, 0, 0, torch.zeros(1), PLAN, "delta") for client in range(8)]


def test_processes_take_over_when_training_has_taken_two_seconds(world):
    trainer, log = world
    for job in JOBS[:5]:
        assert [result.loss for result in trainer.train([job])] == [job.client]
    assert log == [(place, "train", client) for client, place in enumerate(["here"] * 3 + ["there"] * 2)]


def test_processes_are_told_what_is_still_to_come(world):
    trainer, log = world
    for job in JOBS[:6]:
        trainer.expect(job)
    trainer.forget(JOBS[4])
    trainer.train([JOBS[1], JOBS[3]])
    trainer.train([JOBS[0]])
    assert log[-2:] == [("there", "expect", 2), ("there", "expect", 5)]
    trainer.expect(JOBS[6])
    trainer.forget(JOBS[2])
    trainer.close()
    assert log[-3:] == [("there", "expect", 6), ("there", "forget", 2), ("there", "close", None)]
    assert trainer.examples(3) == 30


def test_a_short_run_has_no_processes_to_end(world):
    trainer, log = world
    trainer.train(JOBS[:1])
    trainer.close()
    assert log == [("here", "train", 0)]
    assert trainer.examples(3) == 30


class Failing(Recording):
    """Fails at what a process is asked or told."""

    def train(self, jobs):
        raise OffbeatError("killed")

    def expect(self, job):
        if job is JOBS[7]:
            raise OffbeatError("no process")
        super().expect(job)


@pytest.mark.parametrize("how", ["train", "expect"])
def test_when_processes_fail_it_goes_on_in_this_one(how, monkeypatch, caplog):
    clock, log = [0.0], []
    monkeypatch.setattr(late_processes.time, "monotonic", lambda: clock[0])
    trainer = LateProcesses(Recording("here", log, clock, 3.0), lambda: Failing("there", log, clock, 0.0))
    trainer.train(JOBS[:1])
    if how == "expect":
        trainer.expect(JOBS[6])
        trainer.expect(JOBS[7])
    for job in JOBS[1:4]:
        assert trainer.train([job])[0].loss == job.client
    trainer.expect(JOBS[5])
    trainer.close()
    before = [("there", "expect", 6)] if how == "expect" else []
    trained = [("here", "train", client) for client in range(1, 4)]
    assert log == [("here", "train", 0), *before, ("there", "close", None), *trained]
    assert len(caplog.records) == 1


def test_without_processes_it_goes_on_as_it_began(monkeypatch, caplog):
    clock, log = [0.0], []
    monkeypatch.setattr(late_processes.time, "monotonic", lambda: clock[0])

    def fail():
        raise OffbeatError("the loss cannot be sent")

    trainer = LateProcesses(Recording("here", log, clock, 0.9), fail)
    trainer.expect(JOBS[7])
    for job in JOBS[:6]:
        trainer.train([job])
    trainer.expect(JOBS[7])
    trainer.close()
    assert log == [("here", "train", client) for client in range(6)]
    assert [record.getMessage() for record in caplog.records] == [
        "one process trains all clients: the loss cannot be sent"
    ]
