"""The trainer of several processes with real processes."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_same, data_of, made
from tests.workloads import workload_of

PLAN = LocalPlan(steps=2, batch_size=5, lr=0.1)
SIZES = (7, 23, 3, 12)
PLANS = [
    PLAN,
    LocalPlan(steps=4, batch_size=5, lr=0.1, momentum=0.8),
    LocalPlan(steps=4, batch_size=5, lr=0.1, mu=0.9),
    LocalPlan(steps=4, batch_size=5, lr=0.3, clip_norm=0.1, weight_decay=0.1),
    LocalPlan(steps=3, batch_size=5, lr=(0.3, 0.01, 0.2)),
    LocalPlan(steps=2, batch_size=100, lr=0.1),
    LocalPlan(steps=7, batch_size=5, lr=0.1, by_epochs=True),
]
WAITS = len(SIZES)  # a client after those of SIZES


def waiting(folder: Path) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a loss that waits for one client until there is a file ``go``."""

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        if labels[0] >= 10:
            (folder / "begun").write_text(f"{os.getpid()}\n")
            while not (folder / "go").exists():
                time.sleep(0.01)
        return cross_entropy(outputs, labels % 10)

    return loss


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Callable[..., tuple[ProcessPool, LoopBackend]]]:
    """Return a function that makes the trainer and the reference with one thread."""
    data = data_of((*SIZES, 5), 1, 8, 8)
    data["loss"] = waiting(tmp_path)
    data["labels"][data["shards"][WAITS]] += 10

    def make(module: nn.Module, workers: int, **more: str) -> tuple[ProcessPool, LoopBackend]:
        model = FlatModel(module)
        return ProcessPool(workload_of(model, **data, **more), workers=workers), LoopBackend(
            workload_of(model, **data, **more)
        )

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield make
    torch.set_num_threads(threads)


def real_jobs(length: int) -> list[Job]:
    starts = [torch.full((length,), 0.01), torch.linspace(-0.1, 0.1, length)]
    offset = torch.linspace(-1, 1, length)
    return [
        Job(
            client,
            visit,
            0,
            starts[(client + visit) % 2],
            plan,
            "params" if visit % 2 else "delta",
            offset * (visit + client) if client % 2 else None,
        )
        for visit, plan in enumerate(PLANS)
        for client in range(len(SIZES))
    ]


def begun(folder: Path) -> int:
    """Wait until a worker has begun with the client that waits; return the worker's number."""
    for _ in range(3000):
        if (folder / "begun").exists() and (text := (folder / "begun").read_text()).endswith("\n"):
            (folder / "begun").unlink()
            return int(text)
        time.sleep(0.01)
    raise TimeoutError


class TestRealProcesses:
    def test_one_worker_equals_the_reference_and_ends_with_its_trainer(self, both):
        trainer, plain = both(made(lambda: models.mlp((1, 8, 8), 4, [6, 5])), 1, augmentation="crop-and-flip")
        jobs = real_jobs(449)
        assert_same(trainer.train(jobs), plain.train(jobs))
        assert trainer.name == plain.name
        assert trainer._workers is not None
        (worker,) = trainer._workers.assigned
        pid = worker.pid
        os.kill(pid, 0)
        del trainer, worker
        gc.collect()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    @pytest.mark.usefixtures("forked_workers")
    def test_two_workers_equal_the_reference_in_any_order(self, both, tmp_path):
        layers = made(lambda: [*list(models.cnn((1, 8, 8), 4))[:-1], nn.Dropout(0.3), nn.Linear(64, 4)])
        trainer, plain = both(nn.Sequential(*layers), 2)
        jobs = real_jobs(trainer._tensors["starts"].shape[1])
        waits, forgotten = jobs[0]._replace(client=WAITS), jobs[0]._replace(visit=len(PLANS))
        with closing(trainer):
            trainer.submit(waits)
            worker = begun(tmp_path)
            # The other worker trains everything but the forgotten job, which waits behind the first.
            for job in [jobs[0], forgotten, *jobs[3::3]]:
                trainer.submit(job)
            trainer.cancel(forgotten)
            shuffled = [jobs[number] for number in np.random.default_rng(1).permutation(len(jobs))]
            assert_same(trainer.train(shuffled), plain.train(shuffled))

            # A visit restarts when its worker is killed.
            os.kill(worker, signal.SIGKILL)
            (tmp_path / "go").touch()
            assert_same(trainer.train([waits, jobs[0]]), plain.train([waits, jobs[0]]))

    @pytest.mark.usefixtures("forked_workers")
    def test_batches_equal_those_of_one_process(self):
        net = made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 4)))
        workload = workload_of(FlatModel(net), **data_of((*SIZES, 5), 1, 8, 8))
        jobs = real_jobs(len(workload.model.vector))
        expected = VmapBackend(workload).train(jobs)
        with closing(ProcessPool(workload, workers=1, make=partial(VmapBackend, batch_limit=5))) as trainer:
            assert_same(trainer.train(jobs), expected)
            assert trainer.name == "vmap"

    def test_workers_end_when_their_parent_is_killed(self):
        script = """
import time, numpy as np, torch
from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.backend import Job
from offbeat.training.workload import Examples, Objective, Workload
model, loss = FlatModel(torch.nn.Linear(2, 1)), lambda outputs, _: outputs.mean()
examples = Examples(torch.ones(3, 2), torch.ones(3))
trainer = ProcessPool(Workload(model, Objective(loss), examples, [np.arange(3)], seed=1), workers=1)
result = trainer.train([Job(0, 0, 0, torch.zeros(3), LocalPlan(steps=1, batch_size=3, lr=1.0), "delta")])[0]
print(result.vector.tolist(), [worker.pid for worker in trainer._workers.assigned], flush=True)
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
