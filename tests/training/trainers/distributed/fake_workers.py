"""Workers that reply on request, in place of processes."""

import multiprocessing.connection
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pipe
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.distributed.shared_memory import SharedMemory
from offbeat.training.trainers.distributed.worker import JobMessage, Reply, WorkerSetup
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import made
from tests.workloads import workload_of

PLAN = LocalPlan(steps=2, batch_size=5, lr=0.1)


class FakeWorker:
    """A worker that replies on request; a job's result is its start plus the client's number."""

    def __init__(self, workers: "FakeWorkers", memory: SharedMemory, setup: WorkerSetup) -> None:
        self.connection, self._other = Pipe()
        self.memory, self.setup = memory, setup
        self.batches: list[Sequence[JobMessage]] = []
        self.clients: list[int] = []  # of all its jobs
        self.ended = False
        workers.all.append(self)

    @property
    def messages(self) -> list[JobMessage]:
        """The jobs without a reply, in order."""
        return [message for batch in self.batches for message in batch]

    def send(self, batch: Sequence[JobMessage]) -> None:
        self.batches.append(batch)
        self.clients.extend(message.client for message in batch)

    def answer(self, answer: Reply | None = None) -> None:
        replies: list[Reply] = []
        for message in self.batches.pop(0):
            self.memory["results"][message.result] = self.memory["starts"][message.start] + message.client
            replies.append(answer or ("done", float(message.client), None))
        self._other.send(replies)

    def die(self) -> None:
        self._other.close()

    def receive(self) -> list[Reply] | None:
        try:
            return self.connection.recv()
        except EOFError:
            return None

    def wait(self) -> str:
        self.kill()
        return "signal 9"

    def kill(self) -> None:
        self.ended = True
        self.connection.close()
        self._other.close()


class FakeWorkers:
    """All fake workers, and the events while the trainer waits for them."""

    def __init__(self) -> None:
        self.all: list[FakeWorker] = []
        self.events: list[Callable[[], object]] = []

    @property
    def clients(self) -> list[list[int]]:
        """The clients of each worker's jobs, in order."""
        return [worker.clients for worker in self.all]

    def wait(self, connections: Sequence[Any], timeout: float | None) -> list[Any]:
        ready = multiprocessing.connection.wait(connections, 0)
        if ready or timeout == 0:
            return ready
        assert self.events, "the trainer waits without an event"
        self.events.pop(0)()
        return multiprocessing.connection.wait(connections, 0)

    def expect_events(self, *events: Callable[[], object]) -> None:
        assert not self.events
        self.events.extend(events)

    def answer(self, worker: int, times: int = 1) -> None:
        for _ in range(times):
            self.all[worker].answer()


def trainer_of(module: nn.Module | None = None, workers: int = 2, batch_limit: int = 1) -> ProcessPool:
    """Make a trainer for clients with trivial data."""
    make = partial(VmapBackend, batch_limit=batch_limit) if batch_limit > 1 else LoopBackend
    model = FlatModel(module or made(lambda: nn.Linear(4, 1)))
    data = {"inputs": torch.zeros(20, 4), "labels": torch.zeros(20), "shards": [np.arange(20)] * 20}
    return ProcessPool(workload_of(model, loss=cross_entropy, **data, seed=3), workers=workers, make=make)


def jobs_of(number: int, start: Tensor | None = None) -> list[Job]:
    start = torch.zeros(5) if start is None else start
    return [Job(client, client, 0, start, PLAN, "delta") for client in range(number)]


def firsts(results: Sequence[Any]) -> list[float]:
    assert all(result.vector[0] == result.loss for result in results)
    return [result.loss for result in results]
