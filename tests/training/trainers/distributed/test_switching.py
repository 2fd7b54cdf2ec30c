import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import LocalPlan
from offbeat.training.trainers.distributed import switching
from offbeat.training.trainers.distributed.switching import SwitchingTrainer
from offbeat.training.trainers.trainer import Job, Result, Trainer

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)
PATIENCE_SECONDS = 2.0  # the tests' fixture has endless patience


class Recording(Trainer):
    """Records calls; a job takes a number of seconds."""

    name = "loop"
    batch_limit = 1

    def __init__(self, place, log, clock, seconds):
        self.place, self.log, self.clock, self.seconds = place, log, clock, seconds
        self.workload = None

    def collect(self, jobs):
        self.clock[0] += self.seconds * len(jobs)
        self.log.extend((self.place, "collect", job.client) for job in jobs)
        return [Result(torch.zeros(1), float(job.client)) for job in jobs]

    def submit(self, job):
        self.log.append((self.place, "submit", job.client))

    def cancel(self, job):
        self.log.append((self.place, "cancel", job.client))

    def close(self):
        self.log.append((self.place, "close", None))


@pytest.fixture
def idle(monkeypatch):
    """The mean numbers of idle cores that a trainer finds, one after the other; then always 1."""
    numbers = []
    monkeypatch.setattr(switching.IdleCores, "mean", lambda self: numbers.pop(0) if numbers else 1.0)
    return numbers


@pytest.fixture
def world(monkeypatch, idle):
    """Return a function that makes a trainer, 0.9 s per job before it has processes, and its log."""
    clock, log = [0.0], []
    monkeypatch.setattr(switching.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(switching, "_PATIENCE_SECONDS", PATIENCE_SECONDS)

    def make(kind=Recording, seconds=0.9):
        local = Recording("local", log, clock, seconds)
        return SwitchingTrainer(local, lambda: kind("remote", log, clock, seconds)), log

    return make


JOBS = [Job(client, 0, 0, torch.zeros(1), PLAN, "delta") for client in range(8)]


def test_processes_take_over_when_training_has_taken_two_seconds(world):
    trainer, log = world()
    trainer.close()  # no processes to end
    for job in JOBS[:5]:
        assert [result.loss for result in trainer.collect([job])] == [job.client]
    assert log == [(place, "collect", client) for client, place in enumerate(["local"] * 3 + ["remote"] * 2)]


def test_on_busy_cores_this_process_goes_on_and_looks_again(world, idle):
    idle += [0.1, 0.4]
    trainer, log = world()
    for job in JOBS:
        trainer.collect([job])
    assert [place for place, _, _ in log] == ["local"] * 8
    trainer.collect(JOBS[:1])  # the ninth job: 2.7 s for the third time
    trainer.collect(JOBS[:1])
    assert [place for place, _, _ in log[8:]] == ["local", "remote"]


def test_processes_are_told_the_expected_jobs(world):
    trainer, log = world()
    for job in JOBS[:6]:
        trainer.submit(job)
    trainer.cancel(JOBS[4])
    trainer.collect([JOBS[1], JOBS[3]])
    trainer.collect([JOBS[0]])
    assert log[-2:] == [("remote", "submit", 2), ("remote", "submit", 5)]
    trainer.submit(JOBS[6])
    trainer.cancel(JOBS[2])
    trainer.close()
    assert log[-3:] == [("remote", "submit", 6), ("remote", "cancel", 2), ("remote", "close", None)]


class Failing(Recording):
    """A trainer whose processes fail."""

    def collect(self, jobs):
        raise OffbeatError("killed")

    def submit(self, job):
        if job is JOBS[7]:
            raise OffbeatError("no process")
        super().submit(job)


@pytest.mark.parametrize("how", ["collect", "submit"])
def test_when_processes_fail_this_one_continues(how, world, caplog):
    trainer, log = world(Failing, seconds=3.0)
    trainer.collect(JOBS[:1])
    if how == "submit":
        trainer.submit(JOBS[6])
        trainer.submit(JOBS[7])
    for job in JOBS[1:4]:
        assert trainer.collect([job])[0].loss == job.client
    trainer.submit(JOBS[5])
    trainer.close()
    before = [("remote", "submit", 6)] if how == "submit" else []
    trained = [("local", "collect", client) for client in range(1, 4)]
    assert log == [("local", "collect", 0), *before, ("remote", "close", None), *trained]
    assert len(caplog.records) == 1


def test_without_processes_this_one_continues(world, caplog):
    def fail(*_):
        raise OffbeatError("the loss cannot be sent")

    trainer, log = world(fail)
    trainer.submit(JOBS[7])
    for job in JOBS[:6]:
        trainer.collect([job])
    trainer.submit(JOBS[7])
    trainer.close()
    assert log == [("local", "collect", client) for client in range(6)]
    assert [record.getMessage() for record in caplog.records] == [
        "one process trains all clients: the loss cannot be sent"
    ]
