import os
import runpy
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed import worker
from offbeat.training.trainers.distributed.packed_workload import PackedWorkload, pack_workload
from offbeat.training.trainers.distributed.shared_memory import SharedMemory, share
from offbeat.training.trainers.distributed.worker import JobMessage, Reply, Worker, WorkerSetup
from tests.training.conftest import SEED
from tests.workloads import workload_of

PLAN = LocalPlan(steps=3, batch_size=4, lr=0.3)
PACKED = PackedWorkload({}, SEED)
MESSAGES = [
    JobMessage(client=1, visit=0, version=0, start=0, result=2, plan=PLAN, payload="delta"),
    JobMessage(client=3, visit=2, version=1, start=1, result=0, plan=PLAN, payload="params"),
]


@pytest.fixture
def share_all(network, data):
    """Return a function that makes a worker's memory for the small network and a loss."""
    made: list[SharedMemory] = []

    def make(loss: Any = cross_entropy) -> SharedMemory:
        packed = pack_workload(workload_of(FlatModel(network()), **data | {"loss": loss}), "processes")
        starts = torch.stack([torch.zeros(59), torch.full((59,), 0.1)])
        memory = share({**packed.tensors, "starts": starts, "results": torch.full((3, 59), -1.0)})
        made.append(memory)
        return memory

    yield make
    for memory in made:
        memory.close()


def conversation(memory, messages, run=worker.serve, batch=1, **setup):
    """Send batches of messages to a worker in this process, run it until its end, and return its replies."""
    here, there = Pipe()
    here.send(WorkerSetup(memory.locations, PACKED, **setup))
    for first in range(0, len(messages), batch):
        here.send(messages[first : first + batch])
    # The worker must see the end of the messages, but still be able to reply.
    with socket.socket(fileno=os.dup(here.fileno())) as end:
        end.shutdown(socket.SHUT_WR)
    fd = os.dup(memory.fd)
    run(there, fd)
    os.close(fd)
    there.close()
    replies = [reply for _ in range(0, len(messages), batch) for reply in here.recv()]
    with pytest.raises(EOFError):
        here.recv()
    here.close()
    return replies


class TestServe:
    def test_results_are_those_of_the_plain_trainer(self, share_all, trainer):
        memory = share_all()
        replies = conversation(memory, MESSAGES)
        jobs = [Job(o.client, o.visit, o.version, memory["starts"][o.start], o.plan, o.payload) for o in MESSAGES]
        for message, reply, expected in zip(MESSAGES, replies, trainer().train(jobs), strict=True):
            assert reply == ("done", expected.loss, expected.squares)
            assert torch.equal(memory["results"][message.result], expected.vector)
        assert memory["results"][1].tolist() == [-1.0] * 59
        assert memory["starts"][0].tolist() == [0.0] * 59

    def test_a_users_mistake_is_one_line_and_the_next_job_is_done(self, share_all, trainer):
        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            if labels.shape == (3,):  # client 2's
                raise KeyError("first\nsecond")
            return cross_entropy(outputs, labels)

        memory = share_all(loss)
        bad = MESSAGES[0]._replace(client=2)
        replies = conversation(memory, [bad, MESSAGES[0]])
        with pytest.raises(OffbeatError) as caught:
            trainer(loss=loss).train([Job(2, 0, 0, memory["starts"][0], PLAN, "delta")])
        assert replies[0] == ("mistake", str(caught.value))
        assert replies[1][0] == "done"

    def test_a_mistake_is_a_reply_to_its_own_job_of_a_batch(self, share_all, network, data):
        memory = share_all()
        messages = [MESSAGES[0], MESSAGES[0]._replace(payload="nothing", result=1), MESSAGES[1]]
        replies = conversation(memory, messages, batch=3, make=partial(VmapBackend, batch_limit=4))
        assert [kind for kind, *_ in replies] == ["done", "failed", "done"]
        jobs = [Job(o.client, o.visit, o.version, memory["starts"][o.start], o.plan, o.payload) for o in MESSAGES]
        batched = VmapBackend(workload_of(FlatModel(network()), **data))
        for message, reply, expected in zip(MESSAGES, replies[::2], batched.train(jobs), strict=True):
            assert reply == ("done", expected.loss, expected.squares)
            assert torch.equal(memory["results"][message.result], expected.vector)

    def test_anything_else_is_a_traceback(self, share_all):
        bad = MESSAGES[0]._replace(payload="nothing")
        kind, text = conversation(share_all(), [bad])[0]
        assert kind == "failed"
        assert text.startswith("Traceback")
        assert "ValueError: this trainer cannot make the payload 'nothing'" in text

    def test_a_model_that_cannot_be_made_is_a_reply_to_every_job(self, share_all):
        memory = share_all()
        memory["code"].zero_()
        replies = conversation(memory, MESSAGES)
        assert {kind for kind, _ in replies} == {"mistake"}
        assert all("cannot be sent to another process" in text for _, text in replies)

    def test_it_ends_when_replies_cannot_be_sent(self, share_all):
        memory = share_all()
        here, there = Pipe()
        for message in [WorkerSetup(memory.locations, PACKED), MESSAGES[:1], MESSAGES[1:]]:
            here.send(message)
        here.close()
        worker.serve(there, memory.fd)
        assert torch.equal(memory["results"][0], torch.full((59,), -1.0))
        there.close()


class TestMain:
    def test_it_serves_with_one_thread_and_without_ctrl_c(self, share_all, monkeypatch):
        memory = share_all()
        before = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
        torch.set_num_threads(2)

        def run(connection: Connection, fd: int) -> None:
            monkeypatch.setattr(sys, "argv", ["worker", str(os.dup(connection.fileno())), str(fd)])
            runpy.run_path(worker.__file__, run_name="__main__")

        try:
            assert [kind for kind, *_ in conversation(memory, MESSAGES, run)] == ["done", "done"]
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
    def test_a_process_from_its_beginning_to_its_end(self, share_all, trainer, capfd, monkeypatch):
        monkeypatch.setattr(sys, "path", ["", "/first/of/all", *sys.path])
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
        memory = share_all(telling)
        one_step = MESSAGES[0]._replace(plan=LocalPlan(steps=1, batch_size=4, lr=0.3))
        with typed("hello"):
            process = Worker(memory, WorkerSetup(memory.locations, PACKED))
        process.send([one_step])
        replies: list[Reply] | None = process.receive()
        job = Job(1, 0, 0, memory["starts"][0], one_step.plan, "delta")
        (expected,) = trainer().train([job])
        assert replies == [("done", expected.loss, expected.squares)]
        assert torch.equal(memory["results"][one_step.result], expected.vector)

        said = capfd.readouterr()
        assert said.out == "threads 1 1 group True input ''\n"
        assert f"path {[str(Path.cwd()), '/first/of/all']}"[:-1] in said.err

        os.kill(process.pid, signal.SIGINT)
        process.send([one_step])
        assert process.receive() == replies

        os.kill(process.pid, signal.SIGKILL)
        assert process.receive() is None
        process.send([one_step])
        assert process.receive() is None
        assert process.wait() == "signal 9"
        process.kill()
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
        assert process.connection.closed

    def test_a_process_that_cannot_run_reports_its_exit_code(self, share_all, monkeypatch):
        memory = share_all()
        monkeypatch.setattr(sys, "executable", "/bin/false")
        process = Worker(memory, WorkerSetup(memory.locations, PACKED))
        assert process.receive() is None
        assert process.wait() == "exit code 1"
        monkeypatch.setattr(sys, "executable", "/no/such/file")
        with pytest.raises(FileNotFoundError):
            Worker(memory, WorkerSetup(memory.locations, PACKED))
