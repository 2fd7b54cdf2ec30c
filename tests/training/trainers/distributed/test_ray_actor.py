"""Actors of a Ray cluster, in this process."""

import warnings

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.accelerator import Accelerator
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.distributed.packed_workload import pack_workload
from offbeat.training.trainers.distributed.ray_actor import RayJob, TrainingActor, versions
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import SHARD_SIZES, data_of
from tests.training.trainers.conftest import linear
from tests.workloads import workload_of

PLAN = LocalPlan(steps=3, batch_size=4, lr=0.1)


def workload(**more):
    return workload_of(FlatModel(linear()), **{**data_of(SHARD_SIZES, 6, classes=3), **more})


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def actor_of(given) -> TrainingActor:
    """Return an actor whose arrays are read-only, as those of Ray are."""
    threads = torch.get_num_threads()
    packed = pack_workload(given, "ray")
    try:
        arrays = {name: read_only(tensor.numpy()) for name, tensor in packed.tensors.items()}
        actor = TrainingActor(packed._replace(tensors={}), arrays)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    return actor


def test_replies_equal_the_reference():
    starts = [torch.linspace(-1, 1, 21), torch.zeros(21)]
    offset = torch.full((21,), 0.3)
    jobs = [
        Job(3, 0, 0, starts[1], PLAN, "delta"),
        Job(1, 2, 0, starts[0], PLAN, "params", offset),
        Job(0, 1, 0, starts[0], PLAN, "delta"),
    ]
    vectors = [read_only(vector.numpy()) for vector in (*starts, offset)]
    empty = torch.empty(0)
    batch = [
        RayJob(job._replace(start=empty, offset=None), start, offset)
        for job, start, offset in zip(jobs, (1, 0, 0), (None, 2, None), strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replies = actor_of(workload()).train(batch, *vectors)
    for reply, expected in zip(replies, LoopBackend(workload()).train(jobs), strict=True):
        assert torch.equal(torch.from_numpy(reply[0]), expected.vector)
        assert reply[1] == expected.loss


@pytest.mark.parametrize("client", [0, 99])
def test_an_error_is_a_reply_and_the_others_are_trained(client):
    def loss(outputs, labels):
        return outputs if len(labels) == 4 else cross_entropy(outputs, labels)

    plan = LocalPlan(steps=1, batch_size=4, lr=0.1)
    jobs = [Job(client, 0, 0, torch.empty(0), plan, "delta"), Job(2, 0, 0, torch.empty(0), plan, "delta")]
    replies = actor_of(workload(loss=loss)).train([RayJob(job, 0, None) for job in jobs], np.zeros(21, np.float32))
    if client == 0:
        assert isinstance(replies[0], OffbeatError)
        assert "loss" in str(replies[0])
    else:
        assert isinstance(replies[0], str)
        assert replies[0].startswith("Traceback")
    assert isinstance(replies[1], tuple)


def test_versions_are_of_this_process():
    assert versions()["torch"] == torch.__version__
    assert set(versions()) == {"Python", "torch", "offbeat"}
    assert actor_of(workload()).versions() == versions()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_hook_is_refused_by_the_trainers_name(device):
    given = workload().to(Accelerator(torch.device(device)))
    next(given.model.module.parameters()).register_hook(lambda gradient: gradient)
    with pytest.raises(OffbeatError, match=r"^trainer = 'ray': the model's parameter .* has a hook"):
        pack_workload(given, "ray")
