"""The trainer of several processes with fake workers: the order of jobs, deaths, and the end."""

import gc
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms.components import Compression
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.distributed import process_pool, worker_pool
from offbeat.training.trainers.distributed.packed_workload import unpack_code
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.distributed.worker import JobMessage, Reply
from tests.training.conftest import made
from tests.training.trainers.distributed.fake_workers import PLAN, firsts, jobs_of, trainer_of
from tests.workloads import workload_of


class TestSchedule:
    def test_workers_are_started_when_there_is_something_to_do(self, workers, make):
        trainer, jobs = make(2), jobs_of(6)
        assert workers.clients == []
        for job, expected in zip(
            jobs,
            ([[0]], [[0], [1]], [[0, 2], [1]], [[0, 2], [1, 3]], [[0, 2], [1, 3]], [[0, 2], [1, 3]]),
            strict=True,
        ):
            trainer.submit(job)
            assert workers.clients == expected
        assert workers.all[0].setup.packed.seed == 3

    def test_an_idle_worker_is_preferred_to_a_new_one(self, workers, make):
        trainer, jobs = make(2), jobs_of(3)
        for job in jobs:
            workers.expect_events(lambda: workers.answer(0))
            assert firsts(trainer.train([job])) == [job.client]
        assert workers.clients == [[0, 1, 2]]

    def test_requested_jobs_come_before_expected_ones(self, workers, expecting):
        trainer, jobs = expecting(7, 6)
        workers.expect_events(*[lambda: workers.answer(0)] * 4)
        assert firsts(trainer.train([jobs[5], jobs[6]])) == [5, 6]
        assert workers.clients == [[0, 1, 5, 6, 2, 3]]
        assert len(workers.all[0].messages) == 2

    def test_finished_jobs_are_not_waited_for(self, workers, expecting):
        trainer, jobs = expecting(4, 4, workers=2)
        workers.answer(0, times=2)
        workers.answer(1)
        trainer.submit(jobs_of(5)[4])
        assert firsts(trainer.train([jobs[2], jobs[0]])) == [2, 0]
        assert firsts(trainer.train([jobs[1]])) == [1]
        workers.expect_events(lambda: workers.answer(1))
        assert firsts(trainer.train([jobs[3]])) == [3]

    def test_a_job_is_known_by_its_client_and_visit(self, workers, make):
        trainer, job = make(1), jobs_of(1)[0]
        trainer.submit(job)
        trainer.submit(job._replace())
        trainer.submit(job._replace(visit=5))
        assert workers.clients == [[0, 0]]

    def test_another_job_of_the_same_visit_takes_its_place(self, workers, make):
        trainer, job = make(1), jobs_of(1)[0]
        trainer.submit(job)
        workers.expect_events(lambda: workers.answer(0), lambda: workers.answer(0))
        (result,) = trainer.train([job._replace(start=torch.full((5,), 3.0))])
        assert result.vector.tolist() == [3.0] * 5

    def test_a_job_can_occur_twice(self, workers, make):
        trainer, job = make(1), jobs_of(1)[0]
        workers.expect_events(lambda: workers.answer(0), lambda: workers.answer(0))
        one, other = trainer.train([job, job])
        one.vector.fill_(7.0)
        assert other.vector.tolist() == [0.0] * 5

    @pytest.mark.parametrize(("room", "begun"), [(0, 4), (6, 6), (6.9, 6)])
    def test_expected_results_are_bounded(self, room, begun, workers, make, monkeypatch):
        monkeypatch.setattr(worker_pool, "_BYTES_AHEAD", int(room * 20))  # a vector has 20
        trainer, jobs = make(1), jobs_of(12)
        trainer.submit(jobs[0])
        for job in jobs:
            trainer.submit(job)
            if workers.all[0].messages:
                workers.answer(0)
        assert workers.clients == [list(range(begun))]
        workers.expect_events(lambda: workers.answer(0))
        assert firsts(trainer.train([jobs[11]])) == [11]
        assert workers.clients == [[*range(begun), 11]]
        assert firsts(trainer.train([jobs[0]])) == [0]
        trainer.submit(jobs[1])
        assert workers.clients == [[*range(begun), 11, begun]]


class TestBatches:
    """Of three to eight jobs."""

    def test_submitted_jobs_wait_until_they_are_enough(self, workers, make):
        trainer, begun = make(2, batch_limit=8), []
        for job in jobs_of(7):
            trainer.submit(job)
            begun.append(sum(map(len, workers.clients)))
        assert begun == [0, 0, 3, 3, 3, 6, 6]
        assert workers.clients == [[0, 1, 2], [3, 4, 5]]

    def test_a_requested_job_does_not_wait(self, workers, make):
        trainer, jobs = make(2, batch_limit=8), jobs_of(5)
        trainer.submit(jobs[0])
        workers.expect_events(lambda: workers.answer(0))
        assert firsts(trainer.train([jobs[4], jobs[1]])) == [4, 1]
        assert workers.clients == [[4, 1, 0]]
        assert firsts(trainer.train([jobs[0]])) == [0]

    def test_a_worker_has_one_batch_and_many_jobs_are_divided(self, workers, make):
        trainer, jobs = make(2, batch_limit=8), jobs_of(28)
        for job in jobs:
            trainer.submit(job)
        assert [len(clients) for clients in workers.clients] == [3, 3]
        workers.expect_events(*[lambda: [worker.answer() for worker in workers.all if worker.batches]] * 3)
        assert firsts(trainer.train(jobs)) == list(range(28))
        assert [len(clients) for clients in workers.clients] == [3 + 8 + 4, 3 + 7 + 3]

    def test_jobs_of_a_dead_worker_are_trained_alone(self, workers, make):
        trainer, jobs = make(1, batch_limit=8), jobs_of(4)
        for job in jobs:
            trainer.submit(job)
        workers.expect_events(lambda: workers.all[0].die(), *[lambda: workers.answer(1)] * 4)
        assert firsts(trainer.train(jobs)) == [0, 1, 2, 3]
        assert workers.clients == [[0, 1, 2], [0, 1, 2, 3]]

    def test_it_has_the_name_of_its_workers_trainer(self, make):
        assert [make(1, batch_limit=limit).name for limit in (1, 8)] == ["loop", "vmap"]


class TestForget:
    def test_a_forgotten_job_is_not_begun(self, workers, expecting):
        trainer, jobs = expecting(5, 5)
        trainer.cancel(jobs[2])
        workers.expect_events(*[lambda: workers.answer(0)] * 4)
        trainer.train([jobs[4], jobs[3]])
        assert workers.clients == [[0, 1, 4, 3]]

    def test_a_forgotten_result_is_dropped(self, workers, expecting):
        trainer, jobs = expecting(4, 4)
        workers.answer(0)
        trainer.submit(jobs[0])
        trainer.cancel(jobs[0])
        trainer.cancel(jobs[1])
        trainer.cancel(jobs_of(1)[0])  # nobody knows it
        workers.expect_events(*[lambda: workers.answer(0)] * 2)
        assert firsts(trainer.train([jobs[2]])) == [2]
        # What is asked for after all is trained once more.
        workers.expect_events(*[lambda: workers.answer(0)] * 2)
        assert firsts(trainer.train([jobs[1]])) == [1]
        assert workers.clients == [[0, 1, 2, 3, 1]]

    def test_a_mistake_is_raised_by_its_own_job_only(self, workers, expecting):
        trainer, jobs = expecting(7, 3)
        trainer.cancel(jobs[0])
        mistake: Reply = ("mistake", "the model failed")
        for _ in range(2):
            workers.all[0].answer(mistake)
        workers.expect_events(lambda: workers.answer(0))
        assert firsts(trainer.train([jobs[2]])) == [2]
        with pytest.raises(OffbeatError, match=r"^the model failed$"):
            trainer.train([jobs[1]])
        # What else was asked for with it is not begun any more.
        workers.expect_events(lambda: workers.all[0].answer(mistake))
        with pytest.raises(OffbeatError, match=r"^the model failed$"):
            trainer.train(jobs[3:])
        workers.answer(0)
        trainer.submit(jobs[0])
        assert workers.clients == [[0, 1, 2, 3, 4, 5, 0]]

    def test_another_error_comes_with_the_workers_traceback(self, workers, make):
        workers.expect_events(lambda: workers.all[0].answer(("failed", "Traceback:\n  line 3\nIndexError: 7")))
        with pytest.raises(RuntimeError, match=r"^a worker process failed:\nTraceback:\n  line 3\nIndexError: 7$"):
            make().train(jobs_of(1))


class TestMessages:
    def test_the_start_is_in_shared_memory_once(self, workers, make):
        trainer = make(1)
        for number in range(5):  # more than there are rows
            start = torch.full((5,), 100.0 * number)
            jobs = jobs_of(3, start)
            for job in jobs:
                trainer.submit(job)
            messages = workers.all[0].messages
            assert messages[0].start == messages[1].start
            assert messages[0].result != messages[1].result
            workers.expect_events(*[lambda: workers.answer(0)] * 3)
            for job, result in zip(jobs, trainer.train(jobs), strict=True):
                assert torch.equal(result.vector, start + job.client)

    def test_the_other_fields_of_a_job(self, workers, make):
        plan = replace(PLAN, compression=Compression("top_k"), momentum=0.5)
        job = Job(4, 7, 9, torch.zeros(5), plan, "params", torch.ones(5))
        make().submit(job)
        (worker,) = workers.all
        (message,) = worker.messages
        assert message == JobMessage(4, 7, 9, message.start, message.result, plan, "params", message.offset)
        assert worker.memory["starts"][message.offset].tolist() == [1.0] * 5
        assert worker.memory["starts"][message.start].tolist() == [0.0] * 5

    def test_the_buffers_are_reset(self):
        module = made(lambda: nn.Linear(4, 1))
        module.register_buffer("seen", torch.zeros(1))
        model = FlatModel(module)
        module.seen += 3.0
        data = {"inputs": torch.zeros(2, 4), "labels": torch.zeros(2), "shards": [np.arange(2)]}
        trainer = ProcessPool(workload_of(model, loss=cross_entropy, **data, seed=1), workers=1)
        assert unpack_code(trainer._tensors["code"])[0].seen.item() == 0.0


class TestDeaths:
    def test_jobs_of_a_dead_worker_are_assigned_again(self, workers, expecting):
        trainer, jobs = expecting(5, 4)
        workers.answer(0)
        workers.all[0].die()
        workers.expect_events(*[lambda: workers.answer(-1)] * 2)
        assert firsts(trainer.train([jobs[1], jobs[4], jobs[0]])) == [1, 4, 0]
        assert workers.all[0].ended
        assert workers.clients == [[0, 1, 4], [1, 4, 2, 3]]

    def test_a_requested_job_is_assigned_again_beyond_the_bound(self, workers, make, monkeypatch):
        monkeypatch.setattr(worker_pool, "_BYTES_AHEAD", 0)
        trainer, jobs = make(1), jobs_of(6)
        for job in jobs:
            trainer.submit(job)
            workers.answer(0, times=len(workers.all[0].messages))
        workers.expect_events(lambda: workers.all[0].die(), lambda: workers.answer(1))
        assert firsts(trainer.train([jobs[5]])) == [5]
        assert workers.clients == [[0, 1, 2, 3, 5], [5]]

    def test_an_expected_job_keeps_its_turn(self, workers, expecting):
        trainer, jobs = expecting(6, 5)
        trainer.cancel(jobs[0])
        workers.all[0].die()
        trainer.submit(jobs[5])
        workers.expect_events(*[lambda: workers.answer(1)] * 3)
        assert firsts(trainer.train([jobs[5]])) == [5]
        assert workers.clients == [[0, 1], [1, 2, 5, 3, 4]]

    def test_an_idle_dead_worker_is_replaced(self, workers, make):
        trainer, jobs = make(1), jobs_of(2)
        workers.expect_events(lambda: workers.answer(0), lambda: workers.answer(1))
        trainer.train([jobs[0]])
        workers.all[0].die()
        assert firsts(trainer.train([jobs[1]])) == [1]
        assert workers.clients == [[0], [1]]

    def test_a_job_fails_after_three_deaths(self, workers, expecting):
        trainer, jobs = expecting(4, 4)
        workers.answer(0)
        workers.expect_events(*[lambda: workers.all[-1].die()] * 3)
        with pytest.raises(OffbeatError) as caught:
            trainer.train([jobs[1]])
        assert str(caught.value) == (
            "client 1, visit 1: 3 processes that trained it were killed (signal 9), perhaps for lack of memory: "
            "use trainer = 'loop'"
        )
        assert workers.clients == [[0, 1, 2], [1, 2], [1, 2], [2, 3]]
        workers.expect_events(lambda: workers.answer(-1))
        assert firsts(trainer.train([jobs[2]])) == [2]

    def test_deaths_are_raised_by_their_own_job_only(self, workers, make):
        trainer, jobs = make(1), jobs_of(3)
        trainer.submit(jobs[0])
        trainer.submit(jobs[1])
        for _ in range(3):
            workers.all[-1].die()
            trainer.submit(jobs[2])  # notices the death
            trainer.cancel(jobs[2])
        assert workers.clients == [[0, 1], [0, 1], [0, 1], [1, 2]]
        workers.expect_events(lambda: workers.answer(-1))
        assert firsts(trainer.train([jobs[1]])) == [1]
        with pytest.raises(OffbeatError, match=r"^client 0, visit 0: 3 processes"):
            trainer.train([jobs[0]])

    def test_rows_of_dead_workers_are_freed(self, workers, make):
        trainer = make(2)
        for number in range(10):
            jobs = [job._replace(start=torch.full((5,), 10.0 * number + job.client)) for job in jobs_of(4)]
            for job in jobs:
                trainer.submit(job)
            workers.all[-1].die()
            workers.all[-2].die()
            workers.expect_events(*[lambda: workers.answer(-1), lambda: workers.answer(-2)] * 2)
            assert [result.vector[0] for result in trainer.train(jobs)] == [
                10.0 * number + 2 * client for client in range(4)
            ]


class TestEnd:
    def test_close_is_repeatable_and_not_final(self, workers, make):
        trainer, jobs = make(1), jobs_of(4)
        trainer.close()
        for job in jobs:
            trainer.submit(job)
        fd = workers.all[0].memory.fd
        trainer.close()
        trainer.close()
        assert workers.all[0].ended
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        workers.expect_events(lambda: workers.answer(1))
        assert firsts(trainer.train([jobs[3]])) == [3]
        assert workers.clients == [[0, 1], [3]]

    def test_garbage_collection_ends_the_workers(self, workers):
        trainer = trainer_of()
        trainer.submit(jobs_of(1)[0])
        assert not workers.all[0].ended
        del trainer
        gc.collect()
        assert workers.all[0].ended

    def test_a_fork_leaves_the_processes_alone(self, workers, make, monkeypatch):
        trainer = make()
        trainer.submit(jobs_of(1)[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            trainer.close()
        assert not workers.all[0].ended
        workers.all[0].kill()
        workers.all[0].memory.close()


class TestRefusals:
    def test_windows(self, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(os, "name", "nt")
            try:
                trainer_of()
            except OffbeatError as error:
                problem = str(error)
        assert problem == "trainer = 'processes' is for Linux and macOS: use 'loop'"

    @pytest.mark.parametrize("name", ["share", "Worker"])
    def test_a_machine_without_resources(self, name, make, monkeypatch):
        def refuse(*_: object) -> None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(process_pool, name, refuse)
        with pytest.raises(OffbeatError) as caught:
            make().train(jobs_of(1))
        assert str(caught.value) == (
            "trainer = 'processes': a process cannot be started (BlockingIOError: [Errno 11] Resource temporarily "
            "unavailable): use 'loop'"
        )
