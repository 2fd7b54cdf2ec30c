import os
import runpy
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.errors import OffbeatError
from offbeat.training.trainers import worker
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.shared_memory import SharedMemory, packed, share
from offbeat.training.trainers.trainer import Job
from offbeat.training.trainers.worker import Answer, Order, Setup, Worker

SEED = 5  # the fixture trainer's
PLAN = LocalPlan(steps=3, batch_size=4, lr=0.3)
ORDERS = [
    Order(client=1, visit=0, version=0, start=0, result=2, plan=PLAN, payload="delta"),
    Order(client=3, visit=2, version=1, start=1, result=0, plan=PLAN, payload="params"),
]


@pytest.fixture
def share_all(
    network: Callable[..., nn.Module], inputs: Tensor, labels: Tensor, shards: list[NDArray[np.int64]]
) -> Iterator[Callable[..., SharedMemory]]:
    """Return a function that makes a worker's memory for the small network and a loss."""
    made: list[SharedMemory] = []

    def make(loss: Any = cross_entropy, module: nn.Module | None = None) -> SharedMemory:
        memory = share(
            {
                "code": packed(module or network(), loss),
                "inputs": inputs,
                "labels": labels,
                "shards": torch.from_numpy(np.concatenate(shards)),
                "sizes": torch.tensor([len(shard) for shard in shards]),
                "starts": torch.stack([torch.zeros(59), torch.full((59,), 0.1)]),
                "results": torch.full((3, 59), -1.0),
            }
        )
        made.append(memory)
        return memory

    yield make
    for memory in made:
        memory.close()


def conversation(memory: SharedMemory, orders: Sequence[Order], run: Callable[[Connection, int], object]) -> list[Any]:
    """Say everything to a worker that runs in this process, let it run until the end, and return its answers."""
    here, there = Pipe()
    for message in [Setup(memory.places, SEED), *orders]:
        here.send(message)
    # It is to hear the end of what is said, and still to be heard.
    with socket.socket(fileno=os.dup(here.fileno())) as end:
        end.shutdown(socket.SHUT_WR)
    fd = os.dup(memory.fd)
    run(there, fd)
    os.close(fd)
    there.close()
    answers = [here.recv() for _ in orders]
    with pytest.raises(EOFError):
        here.recv()
    here.close()
    return answers


class TestServe:
    def test_it_does_what_the_plain_trainer_does(
        self, share_all: Callable[..., SharedMemory], trainer: Callable[..., LoopTrainer]
    ) -> None:
        memory = share_all()
        answers = conversation(memory, ORDERS, worker.serve)
        jobs = [Job(o.client, o.visit, o.version, memory["starts"][o.start], o.plan, o.payload) for o in ORDERS]
        for order, answer, expected in zip(ORDERS, answers, trainer().train(jobs), strict=True):
            assert answer == ("done", expected.loss)
            assert torch.equal(memory["results"][order.result], expected.vector)
        assert memory["results"][1].tolist() == [-1.0] * 59
        assert memory["starts"][0].tolist() == [0.0] * 59

    def test_a_mistake_of_the_users_is_one_line_and_the_next_order_is_done(
        self, share_all: Callable[..., SharedMemory], trainer: Callable[..., LoopTrainer]
    ) -> None:
        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            if labels.shape == (3,):  # client 2's
                raise KeyError("first\nsecond")
            return cross_entropy(outputs, labels)

        memory = share_all(loss)
        bad = ORDERS[0]._replace(client=2)
        answers = conversation(memory, [bad, ORDERS[0]], worker.serve)
        with pytest.raises(OffbeatError) as caught:
            trainer(loss=loss).train([Job(2, 0, 0, memory["starts"][0], PLAN, "delta")])
        assert answers[0] == ("mistake", str(caught.value))
        assert answers[1][0] == "done"

    def test_anything_else_is_a_traceback(self, share_all: Callable[..., SharedMemory]) -> None:
        bad = ORDERS[0]._replace(payload="nothing")
        kind, text = conversation(share_all(), [bad], worker.serve)[0]
        assert kind == "failed"
        assert text.startswith("Traceback")
        assert "ValueError: this trainer cannot make the payload 'nothing'" in text

    def test_a_model_that_cannot_be_made_is_an_answer_to_every_order(
        self, share_all: Callable[..., SharedMemory]
    ) -> None:
        memory = share_all()
        memory["code"].zero_()
        answers = conversation(memory, ORDERS, worker.serve)
        assert {kind for kind, _ in answers} == {"mistake"}
        assert all("cannot be sent to another process" in text for _, text in answers)

    def test_it_ends_when_nobody_takes_the_answer(self, share_all: Callable[..., SharedMemory]) -> None:
        memory = share_all()
        here, there = Pipe()
        for message in [Setup(memory.places, SEED), *ORDERS]:
            here.send(message)
        here.close()
        worker.serve(there, memory.fd)
        assert torch.equal(memory["results"][0], torch.full((59,), -1.0))
        there.close()


class TestMain:
    @pytest.mark.parametrize("entry", [worker.main, lambda: runpy.run_path(worker.__file__, run_name="__main__")])
    def test_it_serves_with_one_thread_and_without_ctrl_c(
        self, entry: Callable[[], object], share_all: Callable[..., SharedMemory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory = share_all()
        before = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
        torch.set_num_threads(2)

        def run(connection: Connection, fd: int) -> None:
            monkeypatch.setattr(sys, "argv", ["worker", str(os.dup(connection.fileno())), str(fd)])
            entry()

        try:
            assert [kind for kind, _ in conversation(memory, ORDERS, run)] == ["done", "done"]
            assert torch.get_num_threads() == 1
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        finally:
            torch.set_num_threads(before[0])
            signal.signal(signal.SIGINT, before[1])


def telling(outputs: Tensor, labels: Tensor) -> Tensor:
    """Say where it runs."""
    threads = torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]
    print("threads", *threads, "group", os.getpgrp() == os.getpid(), "input", repr(sys.stdin.read()))
    print("path", sys.path, file=sys.stderr)
    return cross_entropy(outputs, labels)


@contextmanager
def typed(text: str) -> Iterator[None]:
    """Have this text in the standard input of processes that are started."""
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    before = os.dup(0)
    os.dup2(reader, 0)
    yield
    os.dup2(before, 0)
    os.close(before)
    os.close(reader)


class TestWorker:
    def test_a_process_from_its_beginning_to_its_end(
        self,
        share_all: Callable[..., SharedMemory],
        trainer: Callable[..., LoopTrainer],
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(sys, "path", ["", "/first/of/all", *sys.path])
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
        memory = share_all(telling)
        one_step = ORDERS[0]._replace(plan=LocalPlan(steps=1, batch_size=4, lr=0.3))
        with typed("hello"):
            process = Worker(memory, Setup(memory.places, SEED))
        process.give(one_step)
        answer: Answer | None = process.hear()
        job = Job(1, 0, 0, memory["starts"][0], one_step.plan, "delta")
        (expected,) = trainer().train([job])
        assert answer == ("done", expected.loss)
        assert torch.equal(memory["results"][one_step.result], expected.vector)

        said = capfd.readouterr()
        assert said.out == "threads 1 1 group True input ''\n"
        assert f"path {[str(Path.cwd()), '/first/of/all']}"[:-1] in said.err

        os.kill(process.pid, signal.SIGINT)
        process.give(one_step)
        assert process.hear() == answer

        os.kill(process.pid, signal.SIGKILL)
        assert process.hear() is None
        process.give(one_step)
        assert process.hear() is None
        assert process.wait() == "signal 9"
        process.kill()

    def test_one_that_cannot_be_run_says_how_it_ended(
        self, share_all: Callable[..., SharedMemory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory = share_all()
        monkeypatch.setattr(sys, "executable", "/bin/false")
        process = Worker(memory, Setup(memory.places, SEED))
        assert process.hear() is None
        assert process.wait() == "exit code 1"
        monkeypatch.setattr(sys, "executable", "/no/such/file")
        with pytest.raises(FileNotFoundError):
            Worker(memory, Setup(memory.places, SEED))

    def test_one_that_is_killed_is_gone(
        self, share_all: Callable[..., SharedMemory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory = share_all()
        process = Worker(memory, Setup(memory.places, SEED))
        process.kill()
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
        assert process.connection.closed
