"""The trainer of several processes, each with batches of three to eight jobs; with fake workers."""

from tests.training.trainers.distributed.fake_workers import firsts, jobs_of


def test_submitted_jobs_wait_until_they_are_enough(workers, make):
    trainer, begun = make(2, batch_limit=8), []
    for job in jobs_of(7):
        trainer.submit(job)
        begun.append(sum(map(len, workers.clients)))
    assert begun == [0, 0, 3, 3, 3, 6, 6]
    assert workers.clients == [[0, 1, 2], [3, 4, 5]]


def test_a_requested_job_does_not_wait(workers, make):
    trainer, jobs = make(2, batch_limit=8), jobs_of(5)
    trainer.submit(jobs[0])
    workers.expect_events(lambda: workers.answer(0))
    assert firsts(trainer.train([jobs[4], jobs[1]])) == [4, 1]
    assert workers.clients == [[4, 1, 0]]
    assert firsts(trainer.train([jobs[0]])) == [0]


def test_a_worker_has_one_batch_and_many_jobs_are_divided(workers, make):
    trainer, jobs = make(2, batch_limit=8), jobs_of(28)
    for job in jobs:
        trainer.submit(job)
    assert [len(clients) for clients in workers.clients] == [3, 3]
    workers.expect_events(*[lambda: [worker.answer() for worker in workers.all if worker.batches]] * 3)
    assert firsts(trainer.train(jobs)) == list(range(28))
    assert [len(clients) for clients in workers.clients] == [3 + 8 + 4, 3 + 7 + 3]


def test_jobs_of_a_dead_worker_are_trained_alone(workers, make):
    trainer, jobs = make(1, batch_limit=8), jobs_of(4)
    for job in jobs:
        trainer.submit(job)
    workers.expect_events(lambda: workers.all[0].die(), *[lambda: workers.answer(1)] * 4)
    assert firsts(trainer.train(jobs)) == [0, 1, 2, 3]
    assert workers.clients == [[0, 1, 2], [0, 1, 2, 3]]


def test_it_has_the_name_of_its_workers_trainer(make):
    assert [make(1, batch_limit=limit).name for limit in (1, 8)] == ["loop", "vmap"]
