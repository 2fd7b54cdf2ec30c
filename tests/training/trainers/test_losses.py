"""Losses that weigh targets, ignore some or have a state, in all trainers."""

import math

import numpy as np
import pytest
import torch
from offbeat_core.local_plan import Epochs
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.graph_loop import GraphBackend
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_alike, assert_same, data_of, made
from tests.workloads import workload_of

SIZES = (20, 20, 20, 20)
PLAN = LocalPlan(steps=6, batch_size=4, lr=0.2)
WEIGHT = torch.tensor([0.1, 5.0, 1.0, 2.0])


def own_mean(outputs, labels):
    return (outputs[:, 0] - labels).square().mean()


def linear():
    return nn.Sequential(nn.Linear(6, 4))


def ignoring(**more):
    """Return data in which the last client has no target, and the others' minibatches have different numbers."""
    data = data_of(SIZES, 6)
    labels = data["labels"].where(torch.from_numpy(np.random.default_rng(2).random(80) < 0.4), -100)
    labels[data["shards"][-1]] = -100
    return data | {"labels": labels} | more


def workload(make=linear, **data):
    return workload_of(made(lambda: FlatModel(make())), **data)


def jobs(made_workload, visits=2):
    start = made_workload.model.vector.clone()
    return [Job(client, visit, 0, start, PLAN, "delta") for visit in range(visits) for client in range(len(SIZES))]


LOSSES = {
    "ignored": cross_entropy,
    "weights": nn.CrossEntropyLoss(weight=WEIGHT),
    "a function": lambda outputs, labels: cross_entropy(outputs, labels, weight=WEIGHT),
}


def losses_of_steps(made_workload, job):
    """Return the sum of the weighted losses of a visit, and of the weights, step by step."""
    steps = []
    weight = torch.ones(4) if made_workload.objective.loss is cross_entropy else WEIGHT

    class Watching(LoopBackend):
        def _differentiate(self, inputs, labels):
            weights = (labels != -100) * weight[labels.clamp(min=0)]
            outputs = self._model.module(inputs).detach()
            each = cross_entropy(outputs, labels, reduction="none")
            steps.append(((each * weights).sum().item(), weights.sum().item()))
            return super()._differentiate(inputs, labels)

    Watching(made_workload).train([job])
    return [sum(parts) for parts in zip(*steps, strict=True)]


@pytest.mark.parametrize("name", LOSSES)
def test_the_reported_loss_is_that_of_all_targets_of_the_visit(name):
    made_workload = workload(**ignoring(loss=LOSSES[name]))
    todo = jobs(made_workload)
    results = LoopBackend(made_workload).train(todo)
    for job, result in zip(todo, results, strict=True):
        total, weights = losses_of_steps(made_workload, job)
        assert result.loss == pytest.approx(total / weights if weights else 0, rel=1e-5)
        assert bool(result.vector.norm() > 1e-3) is (job.client < 3)  # the last client has no target
    assert results[3].loss == 0


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "make",
    [VmapBackend, lambda it: VmapBackend(it, unfold_convolutions=True), lambda it: VmapBackend(it, batch_limit=3)],
)
def test_batches_train_and_report_like_the_loop(name, make):
    made_workload = workload(**ignoring(loss=LOSSES[name]))
    trainer = make(made_workload)
    assert trainer.kernel != "dense"  # whose formula ignores no label
    assert_alike(trainer.train(jobs(made_workload)), LoopBackend(made_workload).train(jobs(made_workload)))


def test_a_recorded_step_reports_what_the_loop_does():
    made_workload = workload(**ignoring())
    recorded = GraphBackend(made_workload, record=lambda compute: compute)
    assert_same(recorded.train(jobs(made_workload)), LoopBackend(made_workload).train(jobs(made_workload)))
    assert recorded.kernel == "graph"


@pytest.mark.parametrize("loss", [cross_entropy, nn.CrossEntropyLoss(), lambda *both: cross_entropy(*both)])
def test_the_loss_of_a_plain_mean_is_the_mean_of_the_steps_as_before(loss):
    made_workload = workload(**data_of(SIZES, 6) | {"loss": loss})
    job = jobs(made_workload)[0]
    trainer = LoopBackend(made_workload)
    (result,) = trainer.train([job])
    assert result.loss == torch.stack([value for value, _ in trainer.steps]).mean().item()
    (batched,) = VmapBackend(made_workload).train([job])
    assert batched.loss == pytest.approx(result.loss, rel=1e-6)


@pytest.mark.parametrize("make", [LoopBackend, VmapBackend])
@pytest.mark.parametrize("loss", [cross_entropy, nn.CrossEntropyLoss(weight=WEIGHT), own_mean])
def test_a_smaller_minibatch_at_the_end_of_a_pass_counts_by_its_examples(make, loss):
    made_workload = workload(**data_of((7, 23), 6) | {"loss": loss})
    plan, start = LocalPlan(steps=1, batch_size=5, lr=1e-9, steps_by=Epochs(1)), made_workload.model.vector.clone()
    todo = [Job(client, 0, 0, start, plan.of(size), "delta") for client, size in enumerate((7, 23))]
    results = make(made_workload).train(todo)
    made_workload.model.load(start)
    for shard, result in zip(made_workload.shards, results, strict=True):
        inputs, labels = made_workload.train.take(torch.from_numpy(shard))
        with torch.no_grad():
            assert result.loss == pytest.approx(loss(made_workload.model.module(inputs), labels).item(), rel=1e-5)


def test_labels_without_ignored_ones_are_trained_by_the_dense_kernel_others_not():
    data = data_of(SIZES, 6)
    assert VmapBackend(workload(**data)).kernel == "dense"
    data["labels"][5] = -100
    assert VmapBackend(workload(**data)).kernel == "vmap"


class Focus(nn.Module):
    """A loss whose factor depends on how often it was called, on a running mean, and on dropout."""

    def __init__(self, dropout=0.5):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.calls = 0
        self.dropout = nn.Dropout(dropout)

    def forward(self, outputs, labels):
        self.calls += 1
        loss = cross_entropy(self.dropout(outputs), labels)
        if not torch._C._functorch.is_gradtrackingtensor(loss):  # a batch of models has no one mean
            self.mean += 0.1 * (loss.detach() - self.mean)
        return loss * (1 + math.cos(self.calls)) + (outputs.square().mean() * self.mean)


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, outputs, labels):
        self.calls += 1
        return cross_entropy(outputs, labels) * (1 + self.calls)


def processes(made_workload):
    return ProcessPool(made_workload, workers=1)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(("loss", "make"), [(Focus, LoopBackend), (Counting, LoopBackend), (Focus, processes)])
def test_each_visit_begins_with_the_first_state_of_the_loss(loss, make):
    data = data_of(SIZES, 6) | {"loss": loss()}
    todo = jobs(workload(**data))
    alone = [LoopBackend(workload(**data)).train([job])[0] for job in todo]
    trainer = make(workload(**data))
    try:
        assert_same(trainer.train(todo), alone)
        assert_same(trainer.train(todo[::-1])[::-1], alone)
    finally:
        trainer.close()
    assert data["loss"].calls == 0


def test_a_batch_begins_with_the_first_state_of_the_loss():
    data = data_of(SIZES, 6) | {"loss": Counting()}
    trainer, todo = VmapBackend(workload(**data)), jobs(workload(**data))
    first = trainer.train(todo)
    assert_alike(first, LoopBackend(workload(**data)).train(todo))
    assert_same(trainer.train(todo), first)


def test_a_loss_with_state_is_not_recorded():
    trainer = GraphBackend(workload(**data_of(SIZES, 6) | {"loss": Counting()}), record=lambda compute: compute)
    assert trainer.kernel == "loop"
