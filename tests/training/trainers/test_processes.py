"""The trainer of several processes: which job comes when, with pretended workers; and the whole, with real ones."""

import gc
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.algorithms.components import Compression
from offbeat.errors import OffbeatError
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers import processes
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.processes import ProcessTrainer
from offbeat.training.trainers.shared_memory import SharedMemory, unpacked
from offbeat.training.trainers.trainer import Job
from offbeat.training.trainers.worker import Answer, Order, Setup

PLAN = LocalPlan(steps=2, batch_size=5, lr=0.1)
SIZES = (7, 23, 3, 12)


class Pretended:
    """A worker that works when it is told to: a job's result is its start plus the client's number."""

    def __init__(self, office: "Office", memory: SharedMemory, setup: Setup) -> None:
        self.connection, self._other = Pipe()
        self.memory, self.setup = memory, setup
        self.orders: list[Order] = []
        self.clients: list[int] = []  # all that it was ever given
        self.ended = False
        office.workers.append(self)

    def give(self, order: Order) -> None:
        self.orders.append(order)
        self.clients.append(order.client)

    def answer(self, answer: Answer | None = None) -> None:
        order = self.orders.pop(0)
        self.memory["results"][order.result] = self.memory["starts"][order.start] + order.client
        self._other.send(answer or ("done", float(order.client)))

    def die(self) -> None:
        self._other.close()

    def hear(self) -> Answer | None:
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


class Office:
    """The pretended workers, and what happens while the trainer waits for them."""

    def __init__(self) -> None:
        self.workers: list[Pretended] = []
        self.meanwhile: list[Callable[[], object]] = []

    @property
    def clients(self) -> list[list[int]]:
        """Whom each worker was ever given, in order."""
        return [worker.clients for worker in self.workers]

    def wait(self, connections: Sequence[Any], timeout: float | None) -> list[Any]:
        ready = multiprocessing.connection.wait(connections, 0)
        if ready or timeout == 0:
            return ready
        assert self.meanwhile, "the trainer waits for something that does not come"
        self.meanwhile.pop(0)()
        return multiprocessing.connection.wait(connections, 0)

    def will(self, *events: Callable[[], object]) -> None:
        assert not self.meanwhile
        self.meanwhile.extend(events)

    def answer(self, worker: int, times: int = 1) -> None:
        for _ in range(times):
            self.workers[worker].answer()


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    office = Office()
    monkeypatch.setattr(processes, "Worker", lambda memory, setup: Pretended(office, memory, setup))
    monkeypatch.setattr(processes, "wait", office.wait)
    yield office
    assert not office.meanwhile, "the trainer has not waited for all that was to come"


def linear() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return nn.Linear(4, 1)


@pytest.fixture
def make() -> Iterator[Callable[..., ProcessTrainer]]:
    """Return a function that makes a trainer for clients without data to speak of."""
    made: list[ProcessTrainer] = []

    def build(workers: int = 2, module: nn.Module | None = None) -> ProcessTrainer:
        model = FlatModel(module or linear())
        data = {"inputs": torch.zeros(20, 4), "labels": torch.zeros(20), "shards": [np.arange(20)] * 20}
        made.append(ProcessTrainer(model, loss=cross_entropy, **data, seed=3, workers=workers))
        return made[-1]

    yield build
    for trainer in made:
        trainer.close()


def jobs_of(number: int, start: Tensor | None = None) -> list[Job]:
    start = torch.zeros(5) if start is None else start
    return [Job(client, client, 0, start, PLAN, "delta") for client in range(number)]


def firsts(results: Sequence[Any]) -> list[float]:
    assert all(result.vector[0] == result.loss for result in results)
    return [result.loss for result in results]


class TestWhoDoesWhat:
    def test_workers_are_started_when_there_is_something_to_do(
        self, office: Office, make: Callable[..., ProcessTrainer]
    ) -> None:
        trainer, jobs = make(2), jobs_of(6)
        assert office.clients == []
        for job, expected in zip(
            jobs,
            ([[0]], [[0], [1]], [[0, 2], [1]], [[0, 2], [1, 3]], [[0, 2], [1, 3]], [[0, 2], [1, 3]]),
            strict=True,
        ):
            trainer.expect(job)
            assert office.clients == expected
        assert office.workers[0].setup.seed == 3

    def test_one_that_is_idle_is_taken_before_another_is_started(
        self, office: Office, make: Callable[..., ProcessTrainer]
    ) -> None:
        trainer, jobs = make(2), jobs_of(3)
        for job in jobs:
            office.will(lambda: office.answer(0))
            assert firsts(trainer.train([job])) == [job.client]
        assert office.clients == [[0, 1, 2]]

    def test_what_is_asked_for_comes_first_then_the_rest_in_order(
        self, office: Office, make: Callable[..., ProcessTrainer]
    ) -> None:
        trainer, jobs = make(1), jobs_of(7)
        for job in jobs[:6]:
            trainer.expect(job)
        office.will(*[lambda: office.answer(0)] * 4)
        assert firsts(trainer.train([jobs[5], jobs[6]])) == [5, 6]
        assert office.clients == [[0, 1, 5, 6, 2, 3]]
        assert len(office.workers[0].orders) == 2

    def test_what_is_done_already_is_not_waited_for(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(2), jobs_of(4)
        for job in jobs:
            trainer.expect(job)
        office.answer(0, times=2)
        office.answer(1)
        trainer.expect(jobs_of(1)[0])
        assert firsts(trainer.train([jobs[2], jobs[0]])) == [2, 0]
        assert firsts(trainer.train([jobs[1]])) == [1]
        office.will(lambda: office.answer(1))
        assert firsts(trainer.train([jobs[3]])) == [3]

    def test_a_job_is_known_by_its_identity(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, job = make(1), jobs_of(1)[0]
        trainer.expect(job)
        trainer.expect(job)
        trainer.expect(job._replace())
        assert office.clients == [[0, 0]]

    def test_the_same_job_can_be_asked_for_twice(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, job = make(1), jobs_of(1)[0]
        office.will(lambda: office.answer(0), lambda: office.answer(0))
        one, other = trainer.train([job, job])
        one.vector.fill_(7.0)
        assert other.vector.tolist() == [0.0] * 5

    def test_no_jobs_no_results_no_workers(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        assert make().train([]) == []
        assert office.workers == []

    @pytest.mark.parametrize(("room", "begun"), [(0, 4), (6, 6), (6.9, 6)])
    def test_results_that_nobody_has_asked_for_have_a_bound(
        self,
        room: float,
        begun: int,
        office: Office,
        make: Callable[..., ProcessTrainer],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(processes, "_BYTES_AHEAD", int(room * 20))  # a vector has 20
        trainer, jobs = make(1), jobs_of(12)
        trainer.expect(jobs[0])
        for job in jobs:
            trainer.expect(job)
            if office.workers[0].orders:
                office.answer(0)
        assert office.clients == [list(range(begun))]
        office.will(lambda: office.answer(0))
        assert firsts(trainer.train([jobs[11]])) == [11]
        assert office.clients == [[*range(begun), 11]]
        assert firsts(trainer.train([jobs[0]])) == [0]
        trainer.expect(jobs[1])
        assert office.clients == [[*range(begun), 11, begun]]


class TestForget:
    def test_what_no_worker_has_is_not_begun(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(5)
        for job in jobs:
            trainer.expect(job)
        trainer.forget(jobs[2])
        office.will(*[lambda: office.answer(0)] * 4)
        trainer.train([jobs[4], jobs[3]])
        assert office.clients == [[0, 1, 4, 3]]

    def test_what_is_begun_or_done_is_dropped(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(4)
        for job in jobs:
            trainer.expect(job)
        office.answer(0)
        trainer.expect(jobs[0])
        trainer.forget(jobs[0])
        trainer.forget(jobs[1])
        trainer.forget(jobs_of(1)[0])  # nobody knows it
        office.will(*[lambda: office.answer(0)] * 2)
        assert firsts(trainer.train([jobs[2]])) == [2]
        # What is asked for after all is trained once more.
        office.will(*[lambda: office.answer(0)] * 2)
        assert firsts(trainer.train([jobs[1]])) == [1]
        assert office.clients == [[0, 1, 2, 3, 1]]

    def test_only_who_asks_hears_of_a_mistake(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(7)
        for job in jobs[:3]:
            trainer.expect(job)
        trainer.forget(jobs[0])
        mistake: Answer = ("mistake", "the model failed")
        for _ in range(2):
            office.workers[0].answer(mistake)
        office.will(lambda: office.answer(0))
        assert firsts(trainer.train([jobs[2]])) == [2]
        with pytest.raises(OffbeatError, match=r"^the model failed$"):
            trainer.train([jobs[1]])
        # What else was asked for with it is not begun any more.
        office.will(lambda: office.workers[0].answer(mistake))
        with pytest.raises(OffbeatError, match=r"^the model failed$"):
            trainer.train(jobs[3:])
        office.answer(0)
        trainer.expect(jobs[0])
        assert office.clients == [[0, 1, 2, 3, 4, 5, 0]]

    def test_another_error_comes_with_the_workers_traceback(
        self, office: Office, make: Callable[..., ProcessTrainer]
    ) -> None:
        office.will(lambda: office.workers[0].answer(("failed", "Traceback:\n  line 3\nIndexError: 7")))
        with pytest.raises(RuntimeError, match=r"^a worker process failed:\nTraceback:\n  line 3\nIndexError: 7$"):
            make().train(jobs_of(1))


class TestWhatAWorkerGets:
    def test_the_start_is_in_shared_memory_once(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer = make(1)
        for number in count():
            start = torch.full((5,), 100.0 * number)
            jobs = jobs_of(3, start)
            for job in jobs:
                trainer.expect(job)
            orders = office.workers[0].orders
            assert orders[0].start == orders[1].start
            assert orders[0].result != orders[1].result
            office.will(*[lambda: office.answer(0)] * 3)
            for job, result in zip(jobs, trainer.train(jobs), strict=True):
                assert torch.equal(result.vector, start + job.client)
            if number == 4:  # more than there are rows
                break

    def test_jobs_from_different_starts_are_kept_apart(
        self, office: Office, make: Callable[..., ProcessTrainer]
    ) -> None:
        trainer = make(2)
        jobs = [job for number in range(8) for job in jobs_of(1, torch.full((5,), float(number)))]
        for job in jobs:
            trainer.expect(job)
        office.will(*[lambda: office.answer(0), lambda: office.answer(1)] * 4)
        results = trainer.train(jobs[::-1])
        assert [result.vector.tolist() for result in results] == [[7.0 - number] * 5 for number in range(8)]

    def test_all_else_that_a_job_says(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        job = Job(4, 7, 9, torch.zeros(5), replace(PLAN, compression=Compression("top_k"), momentum=0.5), "params")
        make().expect(job)
        (order,) = office.workers[0].orders
        assert order == Order(4, 7, 9, order.start, order.result, job.plan, "params")

    def test_the_model_has_the_buffers_that_it_had_at_first(self) -> None:
        module = linear()
        module.register_buffer("seen", torch.zeros(1))
        model = FlatModel(module)
        module.seen += 3.0
        data = {"inputs": torch.zeros(2, 4), "labels": torch.zeros(2), "shards": [np.arange(2)]}
        trainer = ProcessTrainer(model, loss=cross_entropy, **data, seed=1, workers=1)
        assert unpacked(trainer._tensors["code"])[0].seen.item() == 0.0

    def test_the_examples(self, make: Callable[..., ProcessTrainer]) -> None:
        assert make().examples(3) == 20


class TestDeaths:
    def test_what_a_dead_worker_had_is_given_again(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(5)
        for job in jobs[:4]:
            trainer.expect(job)
        office.answer(0)
        office.workers[0].die()
        office.will(*[lambda: office.answer(-1)] * 2)
        assert firsts(trainer.train([jobs[1], jobs[4], jobs[0]])) == [1, 4, 0]
        assert office.workers[0].ended
        assert office.clients == [[0, 1, 4], [1, 4, 2, 3]]

    def test_one_that_was_asked_for_is_given_again_however_much_is_done_ahead(
        self, office: Office, make: Callable[..., ProcessTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "_BYTES_AHEAD", 0)
        trainer, jobs = make(1), jobs_of(6)
        for job in jobs:
            trainer.expect(job)
            office.answer(0, times=len(office.workers[0].orders))
        office.will(lambda: office.workers[0].die(), lambda: office.answer(1))
        assert firsts(trainer.train([jobs[5]])) == [5]
        assert office.clients == [[0, 1, 2, 3, 5], [5]]

    def test_one_that_was_expected_keeps_its_turn(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(6)
        for job in jobs[:5]:
            trainer.expect(job)
        trainer.forget(jobs[0])
        office.workers[0].die()
        trainer.expect(jobs[5])
        office.will(*[lambda: office.answer(1)] * 3)
        assert firsts(trainer.train([jobs[5]])) == [5]
        assert office.clients == [[0, 1], [1, 2, 5, 3, 4]]

    def test_one_that_had_nothing_to_do_is_replaced(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(2)
        office.will(lambda: office.answer(0), lambda: office.answer(1))
        trainer.train([jobs[0]])
        office.workers[0].die()
        assert firsts(trainer.train([jobs[1]])) == [1]
        assert office.clients == [[0], [1]]

    def test_three_deaths_on_the_same_job_are_its_fault(
        self, office: Office, make: Callable[..., ProcessTrainer]
    ) -> None:
        trainer, jobs = make(1), jobs_of(4)
        for job in jobs:
            trainer.expect(job)
        office.answer(0)
        office.will(*[lambda: office.workers[-1].die()] * 3)
        with pytest.raises(OffbeatError) as caught:
            trainer.train([jobs[1]])
        assert str(caught.value) == (
            "client 1, visit 1: 3 processes that trained it were killed (signal 9), perhaps for want of memory: "
            "take trainer = 'loop'"
        )
        assert office.clients == [[0, 1, 2], [1, 2], [1, 2], [2, 3]]
        office.will(lambda: office.answer(-1))
        assert firsts(trainer.train([jobs[2]])) == [2]

    def test_only_who_asks_hears_of_them(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(2)
        trainer.expect(jobs[0])
        for _ in range(3):
            office.workers[-1].die()
            trainer.expect(jobs[1])
        assert office.clients == [[0], [0, 1], [0, 1], [1]]
        office.will(lambda: office.answer(-1))
        assert firsts(trainer.train([jobs[1]])) == [1]
        with pytest.raises(OffbeatError, match=r"^client 0, visit 0: 3 processes"):
            trainer.train([jobs[0]])

    def test_rows_of_the_dead_are_free_again(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer = make(2)
        for number in range(10):
            jobs = [job for start in range(4) for job in jobs_of(1, torch.full((5,), start + 10.0 * number))]
            for job in jobs:
                trainer.expect(job)
            office.workers[-1].die()
            office.workers[-2].die()
            office.will(*[lambda: office.answer(-1), lambda: office.answer(-2)] * 2)
            assert [result.vector[0] for result in trainer.train(jobs)] == [start + 10.0 * number for start in range(4)]


class TestEnd:
    def test_it_can_be_closed_twice_and_used_again(self, office: Office, make: Callable[..., ProcessTrainer]) -> None:
        trainer, jobs = make(1), jobs_of(4)
        trainer.close()
        for job in jobs:
            trainer.expect(job)
        fd = office.workers[0].memory.fd
        trainer.close()
        trainer.close()
        assert office.workers[0].ended
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        office.will(lambda: office.answer(1))
        assert firsts(trainer.train([jobs[3]])) == [3]
        assert office.clients == [[0, 1], [3]]

    def test_nobody_has_to_close_it(self, office: Office) -> None:
        trainer = ProcessTrainer(
            FlatModel(linear()),
            loss=cross_entropy,
            inputs=torch.zeros(2, 4),
            labels=torch.zeros(2),
            shards=[np.arange(2)],
            seed=1,
            workers=1,
        )
        trainer.expect(jobs_of(1)[0])
        assert not office.workers[0].ended
        del trainer
        gc.collect()
        assert office.workers[0].ended

    def test_a_fork_leaves_the_processes_alone(
        self, office: Office, make: Callable[..., ProcessTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trainer = make()
        trainer.expect(jobs_of(1)[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            trainer.close()
        assert not office.workers[0].ended
        office.workers[0].kill()
        office.workers[0].memory.close()


class TestWhatCannotBe:
    def test_windows(self, make: Callable[..., ProcessTrainer], monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "name", "nt")
            try:
                make()
            except OffbeatError as error:
                problem = str(error)
        assert problem == "trainer = 'processes' is for Linux and macOS: take 'loop'"

    def test_a_model_that_cannot_be_sent(self, make: Callable[..., ProcessTrainer]) -> None:
        module = linear()
        module.helper = (number for number in range(3))
        with pytest.raises(OffbeatError, match=r"^trainer = 'processes': the model .* another process \(TypeError: "):
            make(module=module)

    @pytest.mark.parametrize("name", ["share", "Worker"])
    def test_a_machine_without_room(
        self, name: str, make: Callable[..., ProcessTrainer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(processes, name, refuse)
        with pytest.raises(OffbeatError) as caught:
            make().train(jobs_of(1))
        assert str(caught.value) == (
            "trainer = 'processes': a process cannot be started (BlockingIOError: [Errno 11] Resource temporarily "
            "unavailable): take 'loop'"
        )


MODELS = {
    "softmax": lambda: models.softmax_regression((1, 8, 8), 4),
    "mlp": lambda: models.mlp((1, 8, 8), 4, [6, 5]),
    "cnn": lambda: nn.Sequential(*list(models.cnn((1, 8, 8), 4))[:-1], nn.Dropout(0.3), nn.Linear(64, 4)),
}
PLANS = [
    PLAN,
    LocalPlan(steps=4, batch_size=5, lr=0.1, momentum=0.8),
    LocalPlan(steps=4, batch_size=5, lr=0.1, mu=0.9),
    LocalPlan(steps=4, batch_size=5, lr=0.3, clip_norm=0.1, weight_decay=0.1),
    LocalPlan(steps=3, batch_size=5, lr=(0.3, 0.01, 0.2)),
    LocalPlan(steps=2, batch_size=100, lr=0.1),
]
FAILS, WAITS = 4, 5  # clients after those of SIZES


def moody(folder: Path) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a loss that fails of one client, and that of another waits until there is a file ``go``."""

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        mood = int(labels[0]) // 10
        if mood == FAILS:
            raise ValueError("not today")
        if mood == WAITS:
            (folder / "begun").write_text(f"{os.getpid()}\n")
            while not (folder / "go").exists():
                time.sleep(0.01)
        return cross_entropy(outputs, labels % 10)

    return loss


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Callable[..., tuple[ProcessTrainer, LoopTrainer]]]:
    """Return a function that makes the trainer, and the plain one with one thread."""
    random = np.random.default_rng(1)
    sizes = [*SIZES, 5, 5]
    labels = random.integers(4, size=sum(sizes))
    labels[sum(SIZES) :] += np.repeat([10 * FAILS, 10 * WAITS], 5)
    data: dict[str, Any] = {
        "loss": moody(tmp_path),
        "inputs": torch.from_numpy(random.normal(size=(sum(sizes), 1, 8, 8)).astype(np.float32)),
        "labels": torch.from_numpy(labels),
        "shards": np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]),
        "seed": 5,
    }

    def make(name: str, workers: int) -> tuple[ProcessTrainer, LoopTrainer]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = FlatModel(MODELS[name]())
        return ProcessTrainer(model, **data, workers=workers), LoopTrainer(model, **data)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield make
    torch.set_num_threads(threads)


def real_jobs(length: int, plans: Sequence[LocalPlan] = PLANS) -> list[Job]:
    starts = [torch.full((length,), 0.01), torch.linspace(-0.1, 0.1, length)]
    return [
        Job(client, visit, 0, starts[(client + visit) % 2], plan, "params" if visit % 2 else "delta")
        for visit, plan in enumerate(plans)
        for client in range(len(SIZES))
    ]


def assert_same(results: Sequence[Any], expected: Sequence[Any]) -> None:
    for result, other in zip(results, expected, strict=True):
        assert torch.equal(result.vector, other.vector)
        assert result.loss == other.loss


def begun(folder: Path) -> int:
    """Wait until a worker has begun with the client that waits; return the worker's number."""
    for _ in range(3000):
        if (folder / "begun").exists() and (text := (folder / "begun").read_text()).endswith("\n"):
            (folder / "begun").unlink()
            return int(text)
        time.sleep(0.01)
    raise TimeoutError


class TestRealProcesses:
    def test_one_worker_gives_the_plain_trainers_results_and_ends_with_its_trainer(
        self, both: Callable[..., tuple[ProcessTrainer, LoopTrainer]]
    ) -> None:
        pairs = [both("softmax", 1), both("mlp", 1)]
        jobs = [real_jobs(260), real_jobs(449)]
        for (trainer, _), some in zip(pairs, jobs, strict=True):
            trainer.expect(some[0])  # so that both start at the same time
        for (trainer, plain), some in zip(pairs, jobs, strict=True):
            assert_same(trainer.train(some), plain.train(some))
            assert trainer.name == plain.name
        assert trainer._pool is not None
        (worker,) = trainer._pool.given
        pid = worker.pid
        os.kill(pid, 0)
        del pairs, trainer, worker
        gc.collect()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_offsets_reach_the_workers(self, both: Callable[..., tuple[ProcessTrainer, LoopTrainer]]) -> None:
        trainer, plain = both("mlp", 2)
        offset = torch.linspace(-1, 1, trainer._tensors["starts"].shape[1])
        without = real_jobs(len(offset))
        jobs = [job._replace(offset=offset * place) if place % 2 else job for place, job in enumerate(without)]
        with closing(trainer):
            results = trainer.train(jobs)
        assert_same(results, plain.train(jobs))
        assert not torch.equal(results[1].vector, plain.train(without[1:2])[0].vector)

    def test_two_workers_give_the_same_in_any_order_whatever_happens(
        self, both: Callable[..., tuple[ProcessTrainer, LoopTrainer]], tmp_path: Path
    ) -> None:
        trainer, plain = both("cnn", 2)
        jobs = real_jobs(trainer._tensors["starts"].shape[1])
        waits, fails, forgotten = (jobs[0]._replace(client=client) for client in (WAITS, FAILS, FAILS))
        with closing(trainer):
            trainer.expect(waits)
            worker = begun(tmp_path)
            # The other worker does all that is asked for meanwhile.
            for job in [fails, forgotten, *jobs[::3]]:
                trainer.expect(job)
            trainer.forget(forgotten)
            shuffled = [jobs[number] for number in np.random.default_rng(1).permutation(len(jobs))]
            expected = plain.train(shuffled)
            assert_same([trainer.train([job])[0] for job in shuffled[:5]], expected[:5])
            assert_same(trainer.train(shuffled[5:]), expected[5:])

            # A mistake is told as the plain trainer tells it, and leaves everything as it was.
            messages: list[str] = []
            for one in (trainer, plain):
                with pytest.raises(
                    OffbeatError, match=r"the model or the loss failed: ValueError: not today"
                ) as caught:
                    one.train([fails])
                messages.append(str(caught.value))
            assert messages[0] == messages[1]

            # Killed in the middle of a visit, which then is done from its beginning.
            os.kill(worker, signal.SIGKILL)
            (tmp_path / "go").touch()
            assert_same(trainer.train([waits, jobs[0]]), plain.train([waits, jobs[0]]))

    def test_they_end_when_their_parent_is_killed(self) -> None:
        script = """
import time, numpy as np, torch
from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.processes import ProcessTrainer
from offbeat.training.trainers.trainer import Job
trainer = ProcessTrainer(FlatModel(torch.nn.Linear(2, 1)), loss=lambda outputs, _: outputs.mean(), workers=1, seed=1,
    inputs=torch.ones(3, 2), labels=torch.ones(3), shards=[np.arange(3)])
result = trainer.train([Job(0, 0, 0, torch.zeros(3), LocalPlan(steps=1, batch_size=3, lr=1.0), "delta")])[0]
print(result.vector.tolist(), [worker.pid for worker in trainer._pool.given], flush=True)
time.sleep(60)
"""
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            line = parent.stdout.readline()
            assert line.startswith("[1.0, 1.0, 1.0] [")
            os.kill(int(line.split("[")[-1].strip("]\n")), 0)
            parent.kill()
            # The worker has the other end of this pipe as well.
            assert parent.communicate(timeout=10) == ("", None)
