"""One trainer around recording backends: memory that runs out, and the move to processes."""

import logging
import math
from types import SimpleNamespace

import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan
from offbeat_core.user_code_errors import user_code

from offbeat.training.accelerator import CPU
from offbeat.training.trainers import trainer as trainer_module
from offbeat.training.trainers.backend import Backend, Job, Result
from offbeat.training.trainers.trainer import Trainer

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)
PATIENCE_SECONDS = 2.0  # the tests' fixture has endless patience
JOBS = [Job(client, 0, 0, torch.zeros(1), PLAN, "delta") for client in range(8)]


def results_of(jobs):
    return [Result(torch.zeros(1), float(job.client)) for job in jobs]


class Small(Backend):
    """A backend whose memory has room for some jobs only."""

    name, notes = "small", ["a note"]
    workload = SimpleNamespace(accelerator=CPU)

    def __init__(self, room, wraps=False):
        self.batch_limit, self.room, self.wraps, self.batches, self.closed = 8, room, wraps, [], False

    def train(self, jobs):
        return [result for at in range(0, len(jobs), self.batch_limit) for result in self._train(jobs, at)]

    def _train(self, jobs, at):
        batch = jobs[at : at + self.batch_limit]
        self.batches.append(len(batch))
        if len(batch) > self.room:
            if not self.wraps:
                raise torch.OutOfMemoryError("CUDA out of memory")
            with user_code("client 0: the model failed"):
                raise torch.OutOfMemoryError("CUDA out of memory")
        return results_of(batch)

    def close(self):
        self.closed = True


class TestMemory:
    @pytest.mark.parametrize("wraps", [False, True], ids=["as it is", "as a user's error"])
    def test_half_the_batch_is_tried_until_it_fits(self, wraps, caplog):
        small = Small(room=3, wraps=wraps)
        trainer = Trainer(small)
        with caplog.at_level(logging.WARNING):
            results = trainer.collect(JOBS[:7])
        assert [result.loss for result in results] == [0, 1, 2, 3, 4, 5, 6]
        assert small.batches == [7, 4, 2, 2, 2, 1]
        assert trainer.batch_limit == small.batch_limit == 2
        assert [note.partition(":")[0] for note in trainer.notes] == [
            "a note",
            "out of memory with 8 clients at once",
            "out of memory with 4 clients at once",
        ]
        assert caplog.messages == [f"cpu: {note}" for note in trainer.notes[1:]]

    def test_one_client_that_does_not_fit_is_one_line(self):
        with pytest.raises(OffbeatError, match=r"one client does not fit into the memory of cpu: lower local\.batch"):
            Trainer(Small(room=0)).collect(JOBS[:2])

    def test_other_errors_and_facts_are_those_of_the_backend(self, monkeypatch):
        small = Small(room=9)
        trainer = Trainer(small)
        assert (trainer.name, trainer.kernel, trainer.batch_limit, trainer.notes) == ("small", "small", 8, ["a note"])
        assert trainer.workload is small.workload
        assert not trainer.keeps_states

        def fail(jobs):
            raise OffbeatError("a mistake")

        monkeypatch.setattr(small, "train", fail)
        with pytest.raises(OffbeatError, match="a mistake"):
            trainer.collect(JOBS[:1])
        trainer.close()
        assert small.closed


class Recording(Backend):
    """Records calls; a job takes a number of seconds."""

    name = "loop"
    batch_limit = 1
    workload = None

    def __init__(self, place, log, clock, seconds):
        self.place, self.log, self.clock, self.seconds = place, log, clock, seconds

    def train(self, jobs):
        self.clock[0] += self.seconds * len(jobs)
        self.log.extend((self.place, "train", job.client) for job in jobs)
        return results_of(jobs)

    def submit(self, job):
        self.log.append((self.place, "submit", job.client))

    def cancel(self, job):
        self.log.append((self.place, "cancel", job.client))

    def close(self):
        self.log.append((self.place, "close", None))


class Failing(Recording):
    """Processes that fail."""

    def train(self, jobs):
        raise OffbeatError("killed")

    def submit(self, job):
        if job is JOBS[7]:
            raise OffbeatError("no process")
        super().submit(job)


class TestMove:
    @pytest.fixture
    def idle(self, monkeypatch):
        """The mean numbers of idle cores that a trainer finds, one after the other; then always 1."""
        numbers = []
        monkeypatch.setattr(trainer_module._Cores, "mean_idle", lambda self: numbers.pop(0) if numbers else 1.0)
        return numbers

    @pytest.fixture
    def world(self, monkeypatch, idle):
        """Return a function that makes a trainer, 0.9 s per job before it has processes, and its log."""
        clock, log = [0.0], []
        monkeypatch.setattr(trainer_module.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(trainer_module, "_PATIENCE_SECONDS", PATIENCE_SECONDS)

        def make(kind=Recording, seconds=0.9):
            return Trainer(Recording("here", log, clock, seconds), lambda: kind("there", log, clock, seconds)), log

        return make

    def test_processes_take_over_when_training_has_taken_two_seconds(self, world):
        trainer, log = world()
        for job in JOBS[:5]:
            assert [result.loss for result in trainer.collect([job])] == [job.client]
        assert log == [(place, "train", client) for client, place in enumerate(["here"] * 3 + ["there"] * 2)]

    def test_on_busy_cores_this_process_goes_on_and_looks_again(self, world, idle):
        idle += [0.1, 0.4]
        trainer, log = world()
        for job in [*JOBS, *JOBS[:2]]:
            trainer.collect([job])
        # The ninth job ends 2.7 s for the third time.
        assert [place for place, _, _ in log] == ["here"] * 9 + ["there"]

    def test_processes_are_told_the_expected_jobs(self, world):
        trainer, log = world()
        for job in JOBS[:6]:
            trainer.submit(job)
        trainer.cancel(JOBS[4])
        trainer.collect([JOBS[1], JOBS[3]])
        trainer.collect([JOBS[0]])
        assert log[-2:] == [("there", "submit", 2), ("there", "submit", 5)]
        trainer.submit(JOBS[6])
        trainer.cancel(JOBS[2])
        trainer.close()
        assert log[-3:] == [("there", "submit", 6), ("there", "cancel", 2), ("there", "close", None)]

    @pytest.mark.parametrize("how", ["collect", "submit"])
    def test_when_processes_fail_this_one_continues(self, how, world, caplog):
        trainer, log = world(Failing, seconds=3.0)
        trainer.collect(JOBS[:1])
        if how == "submit":
            trainer.submit(JOBS[6])
            trainer.submit(JOBS[7])
        for job in JOBS[1:4]:
            assert trainer.collect([job])[0].loss == job.client
        before = [("there", "submit", 6)] if how == "submit" else []
        trained = [("here", "train", client) for client in range(1, 4)]
        assert log == [("here", "train", 0), *before, ("there", "close", None), *trained]
        assert len(caplog.records) == 1

    def test_without_processes_this_one_continues(self, world, caplog):
        def fail(*_):
            raise OffbeatError("the loss cannot be sent")

        trainer, log = world(fail)
        trainer.submit(JOBS[7])
        for job in JOBS[:6]:
            trainer.collect([job])
        assert log == [("here", "train", client) for client in range(6)]
        assert caplog.messages == ["one process trains all clients: the loss cannot be sent"]

    def test_processes_that_a_user_asks_for_have_no_substitute(self):
        trainer = Trainer(Failing("there", [], [0.0], 0.0))
        with pytest.raises(OffbeatError, match="no process"):
            trainer.submit(JOBS[7])
        with pytest.raises(OffbeatError, match="killed"):
            trainer.collect(JOBS[:1])


class TestIdleCores:
    def test_the_mean_is_idle_time_over_time(self, monkeypatch, tmp_path):
        statistics = tmp_path / "stat"
        monkeypatch.setattr(trainer_module, "_STATISTICS", statistics)
        monkeypatch.setattr(trainer_module.os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
        clock = iter([10.0, 14.0])
        monkeypatch.setattr(trainer_module.time, "monotonic", lambda: next(clock))
        # user, nice, system, idle, iowait, …, in hundredths of a second, for all cores together
        statistics.write_text("cpu  100 7 50 4000 90 0 0 0 0 0\ncpu0 50 3 25 2000 45 0 0 0 0 0\n", encoding="ascii")
        cores = trainer_module._Cores()
        statistics.write_text("cpu  400 7 90 4600 99 0 0 0 0 0\ncpu0 50 3 25 2000 45 0 0 0 0 0\n", encoding="ascii")
        assert cores.mean_idle() == pytest.approx(6.0 / 4.0)

    @pytest.mark.parametrize("text", [None, "", "intr 5"])
    def test_where_the_system_does_not_tell_all_cores_count_as_idle(self, text, monkeypatch, tmp_path):
        monkeypatch.setattr(trainer_module, "_STATISTICS", tmp_path / "stat")
        if text is not None:
            (tmp_path / "stat").write_text(text, encoding="ascii")
        assert trainer_module._Cores().mean_idle() == math.inf
