"""Fake workers, and trainers that use them."""

from collections.abc import Callable, Iterator

import pytest

from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.distributed import process_pool
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from tests.training.trainers.distributed.fake_workers import FakeWorker, FakeWorkers, jobs_of, trainer_of


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWorkers]:
    workers = FakeWorkers()
    monkeypatch.setattr(process_pool, "Worker", lambda memory, setup: FakeWorker(workers, memory, setup))
    monkeypatch.setattr(process_pool, "wait", workers.wait)
    yield workers
    assert not workers.events, "the trainer did not wait for all events"


@pytest.fixture
def make() -> Iterator[Callable[..., ProcessPool]]:
    trainers: list[ProcessPool] = []

    def build(workers: int = 2, batch_limit: int = 1) -> ProcessPool:
        trainers.append(trainer_of(workers=workers, batch_limit=batch_limit))
        return trainers[-1]

    yield build
    for trainer in trainers:
        trainer.close()


@pytest.fixture
def expecting(make: Callable[..., ProcessPool]) -> Callable[..., tuple[ProcessPool, list[Job]]]:
    """Return a function that makes a trainer that expects the first of some jobs."""

    def build(number: int, expected: int, workers: int = 1) -> tuple[ProcessPool, list[Job]]:
        trainer, jobs = make(workers), jobs_of(number)
        for job in jobs[:expected]:
            trainer.submit(job)
        return trainer, jobs

    return build
