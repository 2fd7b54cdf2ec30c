"""The trainer of a Ray cluster, with a real one of two processors on this machine."""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.distributed import ray_pool
from offbeat.training.trainers.distributed.ray_cluster import RayCluster, connect
from offbeat.training.trainers.distributed.ray_pool import RayPool
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_same, data_of, made
from tests.training.trainers.distributed.test_real_processes import SIZES, real_jobs
from tests.workloads import workload_of

ray = pytest.importorskip("ray")

# Ray leaves connections and processes to the end of the program.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PROCESSORS = 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_toml: str) -> None:
    """Work in a folder that holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert connect(RayCluster("local"), PROCESSORS) == PROCESSORS
    # A signal must still end a run with a checkpoint.
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    yield
    ray.shutdown()
    torch.set_num_threads(threads)


@pytest.fixture
def both() -> Iterator[Callable[..., tuple[RayPool, LoopBackend]]]:
    """Return a function that makes the trainer with a number of actors, and the reference."""
    trainers: list[RayPool] = []
    data = data_of((*SIZES, 5), 1, 8, 8)

    def make(module: nn.Module, actors: int, loss=cross_entropy, **more) -> tuple[RayPool, LoopBackend]:
        share = RayCluster(runs=PROCESSORS // actors)
        given = {**data, **more}
        trainers.append(RayPool(workload_of(FlatModel(module), **{**given, "loss": loss}), workers=2, cluster=share))
        return trainers[-1], LoopBackend(workload_of(FlatModel(module), **given))

    yield make
    for trainer in trainers:
        trainer.close()


def net() -> nn.Module:
    layers = made(lambda: [*list(models.cnn((1, 8, 8), 4))[:-1], nn.Dropout(0.3), nn.Linear(64, 4)])
    return nn.Sequential(*layers)


def test_results_equal_the_reference_in_any_order_and_actors_end_with_the_trainer(both):
    trainer, plain = both(net(), 2, augmentation="crop-and-flip")
    assert trainer._actors == []
    jobs = real_jobs(len(trainer.workload.model.vector))
    forgotten = jobs[0]._replace(visit=99)
    for job in [forgotten, *jobs[1:]]:
        trainer.submit(job)
    trainer.cancel(forgotten)
    shuffled = [jobs[number] for number in np.random.default_rng(1).permutation(len(jobs))]
    results = trainer.train(shuffled)
    assert_same(results, plain.train(shuffled))
    assert trainer.name == plain.name
    results[0].vector.add_(1)  # is not Ray's memory, which is read-only
    pids = ray.get([actor.handle.__ray_call__.remote(lambda self: os.getpid()) for actor in trainer._actors])
    assert len(set(pids)) == 2
    trainer.close()
    wait_for_end(pids)


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def killing(folder: Path, times: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a loss that kills the actor when the label 3 comes first, some times."""
    driver = os.getpid()

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        killed = len(list(folder.iterdir()))
        if os.getpid() != driver and labels[0] == 3 and killed < times:
            (folder / str(killed)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return cross_entropy(outputs, labels)

    return loss


@pytest.mark.long
def test_jobs_of_a_killed_actor_are_trained_again(both, tmp_path):
    trainer, plain = both(net(), 2, killing(tmp_path, 1))
    jobs = real_jobs(len(trainer.workload.model.vector))
    for job in jobs:
        trainer.submit(job)
    assert_same(trainer.train(jobs), plain.train(jobs))
    assert len(list(tmp_path.iterdir())) == 1


def failing(outputs: Tensor, labels: Tensor) -> Tensor:
    raise ValueError("a mistake")


@pytest.mark.long
def test_a_users_mistake_is_one_line(both):
    trainer, _ = both(net(), 1, failing)
    job = real_jobs(len(trainer.workload.model.vector))[0]
    with pytest.raises(
        OffbeatError,
        match=r"^client 0, visit 0: the model or the loss failed: ValueError: a mistake \(.*test_ray_pool.py:\d+\)$",
    ):
        trainer.train([job])


@pytest.mark.long
def test_a_cluster_of_other_versions_is_refused(both, monkeypatch):
    trainer, _ = both(net(), 1)
    real = ray_pool.versions()
    monkeypatch.setattr(ray_pool, "versions", lambda: {**real, "torch": "1.0"})
    job = real_jobs(len(trainer.workload.model.vector))[0]
    with pytest.raises(OffbeatError) as caught:
        trainer.train([job])
    assert str(caught.value) == (
        f"trainer = 'ray': the cluster has torch {torch.__version__} and this machine 1.0: install the same versions "
        "on all machines"
    )


@pytest.mark.usefixtures("folder")
def test_a_comparison_one_of_whose_actors_is_killed_equals_that_of_the_loop(offbeat, monkeypatch):
    sent = itertools.count(1)
    real = RayPool._send

    def send(self, actor, tasks):
        real(self, actor, tasks)
        if next(sent) == 10:
            ray.kill(actor.handle)

    monkeypatch.setattr(RayPool, "_send", send)
    small = ("--algorithm", "fedbuff", "--set", "algorithms.fedbuff.concurrency=2", "--set", "stop.updates=20")
    for trainer in ("ray", "loop"):
        code, _, err = offbeat("compare", "tiny.toml", *small, "--trainer", trainer, "--output", trainer)
        assert (code, err) == (0, "")
    assert next(sent) > 10
    here, there = (Path(trainer) / "fedbuff-seed1" for trainer in ("loop", "ray"))
    for name in ("model.safetensors", "history.parquet", "events.parquet"):
        assert (there / name).read_bytes() == (here / name).read_bytes()
    assert "address" not in (there / "config.toml").read_text(encoding="utf-8")


class Missing:
    """Stands for an actor on a machine without Offbeat."""

    def __init__(self, *given: object) -> None:
        raise ModuleNotFoundError("No module named 'offbeat'")

    def versions(self) -> None: ...


@pytest.mark.long
def test_a_cluster_without_offbeat_is_refused(both, monkeypatch):
    trainer, _ = both(net(), 1)
    monkeypatch.setattr(ray_pool, "TrainingActor", Missing)
    job = real_jobs(len(trainer.workload.model.vector))[0]
    with closing(trainer), pytest.raises(OffbeatError) as caught:
        trainer.train([job])
    assert str(caught.value) == (
        "trainer = 'ray': actors cannot be started (ModuleNotFoundError: No module named 'offbeat'): install the same "
        "versions of Python, torch and offbeat on all machines of the cluster"
    )
