"""Every trainer passes inputs by name as keyword arguments, and gives the results of one tensor."""

import dataclasses
from contextlib import closing

import pytest
import torch
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import model_loss
from offbeat.training.trainers.backend import Job, Result
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed.packed_workload import pack_workload
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.distributed.ray_actor import RayJob, TrainingActor
from offbeat.training.trainers.graph_loop import GraphBackend
from offbeat.training.trainers.loop import LoopBackend
from tests.inputs_by_name import Plain, Sentences, named, sentences_of
from tests.training.conftest import assert_alike, assert_same, assert_same_in_parts, made
from tests.workloads import workload_of

SIZES = (7, 23, 3, 12, 1)
DATA = sentences_of(SIZES)
NAMED = DATA | {"inputs": named(DATA["inputs"])}
PLAN = LocalPlan(steps=4, batch_size=5, lr=0.3)
LOSSES = pytest.mark.parametrize("loss", [cross_entropy, model_loss])


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def workload(loss=cross_entropy, data=NAMED, model=Sentences):
    return workload_of(made(lambda: FlatModel(model())), **data | {"loss": loss})


def jobs():
    starts = [made(lambda: FlatModel(Sentences()).vector.clone(), seed=seed) for seed in (30, 31)]
    plans = [PLAN, dataclasses.replace(PLAN, steps=2), dataclasses.replace(PLAN, batch_size=2)]
    return [
        Job(client, visit, 0, starts[client % 2], plan, "delta")
        for visit, plan in enumerate(plans)
        for client in range(len(SIZES))
    ]


@pytest.fixture
def expected():
    return LoopBackend(workload(data=DATA, model=Plain)).train(jobs())


@LOSSES
def test_the_loop(loss, expected):
    assert_same(LoopBackend(workload(loss)).train(jobs()), expected)


@LOSSES
def test_recorded_steps(loss, expected):
    recorded = []

    def record(compute):
        compute()  # once to try it, and then on other minibatches
        recorded.append(compute)
        return compute

    assert_same(GraphBackend(workload(loss), record).train(jobs()), expected)
    assert len(recorded) == 4  # minibatches of 1, 2, 3 and 5


@pytest.mark.usefixtures("forked_workers")
def test_processes(expected):
    with closing(ProcessPool(workload(model_loss), workers=1)) as trainer:
        assert_same(trainer.train(jobs()), expected)


@LOSSES
def test_an_actor_of_ray(loss, expected):
    packed = pack_workload(workload(loss), "ray")
    actor = TrainingActor(packed, {name: tensor.numpy() for name, tensor in packed.tensors.items()})
    vectors = [job.start.numpy() for job in jobs()]
    batch = [RayJob(job._replace(start=torch.empty(0)), index, None) for index, job in enumerate(jobs())]
    replies = actor.train(batch, *vectors)
    assert_same([Result(torch.from_numpy(vector), loss) for vector, loss in replies], expected)


@LOSSES
@pytest.mark.parametrize("padded", [False, True])
def test_vmap(loss, padded, expected):
    trainer = VmapBackend(workload(loss), batch_limit=4, padded=padded)
    assert_alike(trainer.train(jobs()), expected)
    assert_same_in_parts(trainer, jobs())
