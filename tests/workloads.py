"""Workloads of tests."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.workload import Examples, Objective, Workload


def workload_of(model, *, inputs, labels, shards, seed, loss=cross_entropy, augmentation=None):
    """Return the workload of a model on examples, without a test set."""
    return Workload(model, Objective(loss), Examples(inputs, labels), shards, seed, augmentation=augmentation)


def assert_batches_train_like_the_loop(model, inputs):
    """Train two clients of a classifier of two classes, each with half of the inputs."""
    shards = np.split(np.arange(len(inputs)), 2)
    workload = workload_of(model, inputs=inputs, labels=torch.arange(len(inputs)) % 2, shards=shards, seed=1)
    plan = LocalPlan(steps=2, batch_size=4, lr=0.1)
    jobs = [Job(client, 0, 0, model.vector.clone(), plan, "delta") for client in (0, 1)]
    loop, batched = (trainer.train(jobs) for trainer in (LoopBackend(workload), VmapBackend(workload)))
    for one, other in zip(loop, batched, strict=True):
        assert one.vector.norm() > 1e-3
        assert torch.allclose(one.vector, other.vector, atol=1e-6)
