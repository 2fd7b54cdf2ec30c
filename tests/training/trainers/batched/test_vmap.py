"""The batched trainer gives the plain one's results, for any division of the jobs."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_alike, assert_same, assert_same_in_parts, data_of, made
from tests.workloads import workload_of

SIZES = (7, 23, 3, 12, 1)
DATA = data_of(SIZES, 1, 8, 8)
PLAIN = LocalPlan(steps=4, batch_size=5, lr=0.1)
MODELS = {
    "softmax": lambda: models.softmax_regression((1, 8, 8), 4),
    "mlp": lambda: models.mlp((1, 8, 8), 4, [6, 5]),
    "cnn": lambda: models.cnn((1, 8, 8), 4),
    "groupnorm": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)
    ),
    "scalar parameter": lambda: Scaled(),
    "dropout": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4), nn.Dropout(0.1)
    ),
}


class Scaled(nn.Module):
    """Has a parameter without dimensions, and one that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.frozen = nn.Parameter(torch.ones(64), requires_grad=False)
        self.linear = nn.Linear(64, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(inputs.flatten(1) * self.frozen) * self.scale


def make(kind, name="mlp"):
    return kind(workload_of(made(lambda: FlatModel(MODELS[name]())), **DATA))


def start_of(name, version=0):
    return made(lambda: FlatModel(MODELS[name]()).vector.clone(), seed=30 + version)


def jobs_of(plans, name="mlp", payload="delta"):
    """Return a job for each plan: clients in turn, from two starting models."""
    return [
        Job(number % len(SIZES), number, number % 2, start_of(name, number % 2), plan, payload)
        for number, plan in enumerate(plans)
    ]


@pytest.mark.parametrize("name", MODELS)
def test_it_trains_as_the_plain_trainer_does(name):
    jobs = jobs_of([PLAIN] * 8, name)
    assert_alike(make(VmapBackend, name).train(jobs), make(LoopBackend, name).train(jobs))


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9},
        {"mu": 0.7},
        {"weight_decay": 0.1},
        {"clip_norm": 0.3},
        {"momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.3},
        {"lr": (0.4, 0.3, 0.2, 0.1)},
        {"batch_size": 1},
        {"by_epochs": True},
        {"by_epochs": True, "mu": 0.7},
        {"by_epochs": True, "momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.3},
        {"by_epochs": True, "optimizer": "adamw"},
        {"optimizer": "adamw"},
        {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.3},
        {"optimizer": "adamw", "lr": (0.4, 0.3, 0.2, 0.1)},
    ],
    ids=str,
)
def test_every_option_of_a_plan_does_the_same(options):
    jobs = jobs_of([dataclasses.replace(PLAIN, **options)] * 6)
    results = make(VmapBackend).train(jobs)
    # AdamW divides by the root of a mean square, and makes much of rounding where that is small.
    assert_alike(results, make(LoopBackend).train(jobs), factor=10 if options.get("optimizer") == "adamw" else 1)
    plain = make(LoopBackend).train(jobs_of([PLAIN] * 6))
    assert any(not torch.allclose(result.vector, other.vector) for result, other in zip(results, plain, strict=True))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in MODELS),
        *(("mlp", options) for options in ({"mu": 0.7}, {"by_epochs": True}, {"momentum": 0.9, "clip_norm": 0.3})),
    ],
    ids=str,
)
def test_an_offset_is_added_to_each_gradient(name, options):
    plain = jobs_of([dataclasses.replace(PLAIN, **options)] * 6, name)
    offsets = torch.linspace(-1, 1, len(plain[0].start))
    # Some with an offset of their own, some without.
    jobs = [job._replace(offset=offsets * (1 + place)) if place % 3 else job for place, job in enumerate(plain)]
    results = make(VmapBackend, name).train(jobs)
    assert_alike(results, make(LoopBackend, name).train(jobs))
    without = make(LoopBackend, name).train(plain)
    for place, (result, other) in enumerate(zip(results, without, strict=True)):
        assert torch.allclose(result.vector, other.vector, atol=1e-6) is (place % 3 == 0)


def test_jobs_with_different_plans_are_trained_together():
    plans = [
        PLAIN,
        dataclasses.replace(PLAIN, steps=9),
        dataclasses.replace(PLAIN, steps=1, lr=(0.3,)),
        dataclasses.replace(PLAIN, momentum=0.9),
        dataclasses.replace(PLAIN, steps=2, batch_size=20),
        dataclasses.replace(PLAIN, lr=0.01, mu=0.1),
        dataclasses.replace(PLAIN, lr=0.01, optimizer="adamw"),
        dataclasses.replace(PLAIN, lr=0.02, steps=6, optimizer="adamw"),
        dataclasses.replace(PLAIN, lr=0.02, steps=1, optimizer="adamw"),
        dataclasses.replace(PLAIN, by_epochs=True, steps=9),
        dataclasses.replace(PLAIN, by_epochs=True, steps=2),
    ]
    jobs = jobs_of(plans * 2)
    assert_alike(make(VmapBackend).train(jobs), make(LoopBackend).train(jobs))


def test_the_payload_can_be_the_end():
    (delta,), (end,) = (make(VmapBackend).train(jobs_of([PLAIN], payload=kind)) for kind in ("delta", "params"))
    assert torch.equal(delta.vector, start_of("mlp") - end.vector)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in MODELS),
        *((name, {"by_epochs": True}) for name in ("mlp", "groupnorm", "dropout")),
        ("scalar parameter", {"optimizer": "adamw"}),
    ],
    ids=str,
)
def test_the_division_of_jobs_does_not_change_a_bit(name, options):
    plans = [dataclasses.replace(PLAIN, steps=1 + number % 4, **options) for number in range(10)]
    assert_same_in_parts(make(VmapBackend, name), jobs_of(plans, name))


@pytest.mark.parametrize("name", MODELS)
def test_epochs_end_with_smaller_minibatches(name):
    """5 + 2 examples, 5 + 5 + 5 + 5 + 3, 3, 5 + 5 + 2, and 1, each two or more times."""
    jobs = jobs_of([dataclasses.replace(PLAIN, steps=steps, by_epochs=True) for steps in (4, 10, 2, 6, 2) * 2], name)
    results = make(VmapBackend, name).train(jobs)
    assert_alike(results, make(LoopBackend, name).train(jobs))
    full = [job._replace(plan=dataclasses.replace(job.plan, by_epochs=False)) for job in jobs]
    for job, result, other in zip(jobs, results, make(VmapBackend, name).train(full), strict=True):
        has_only_full = SIZES[job.client] <= 5
        assert torch.allclose(result.vector, other.vector, atol=1e-6) is has_only_full


def test_a_smaller_minibatch_does_not_see_other_examples():
    """Those of others are huge."""
    inputs = DATA["inputs"].clone()
    jobs = jobs_of([dataclasses.replace(PLAIN, steps=2, by_epochs=True)] * 6)
    own = DATA["shards"][0]
    inputs[np.setdiff1d(np.arange(len(inputs)), own)] = torch.inf
    data = DATA | {"inputs": inputs}
    for name in ("mlp", "groupnorm"):
        model = made(lambda name=name: FlatModel(MODELS[name]()))
        start = start_of(name)
        alone = [Job(0, visit, 0, start, jobs[0].plan, "delta") for visit in range(2)]
        results = VmapBackend(workload_of(model, **data)).train(alone)
        assert_alike(results, make(LoopBackend, name).train(alone))


def test_the_starting_models_do_not_change():
    jobs = jobs_of([PLAIN] * 3)
    before = [job.start.clone() for job in jobs]
    results = make(VmapBackend).train(jobs)
    assert all(torch.equal(job.start, start) for job, start in zip(jobs, before, strict=True))
    results[0].vector.zero_()
    assert results[1].vector.norm() > 0


def test_a_client_that_diverges_does_not_change_the_others():
    jobs = jobs_of([PLAIN] * 4)
    broken = jobs[1]._replace(start=torch.full_like(jobs[1].start, torch.nan))
    results = make(VmapBackend).train([jobs[0], broken, *jobs[2:]])
    expected = make(VmapBackend).train(jobs)
    assert results[1].vector.isnan().all()
    assert_same([results[other] for other in (0, 2, 3)], [expected[other] for other in (0, 2, 3)])


@pytest.mark.parametrize("name", ["mlp", "groupnorm"])
def test_a_client_that_has_finished_does_not_change(name):
    """The gradient of a client that has taken its last step may be infinite there, but is not needed."""
    long, short = (dataclasses.replace(PLAIN, steps=steps) for steps in (6, 1))
    jobs = jobs_of([long, dataclasses.replace(short, lr=1e37)], name)
    together = make(VmapBackend, name).train(jobs)
    assert together[1].vector.isfinite().all()
    assert_same(together, [make(VmapBackend, name).train([job])[0] for job in jobs])


@pytest.mark.parametrize("name", ["mlp", "groupnorm", "dropout"])
def test_padded_batches_train_as_the_plain_trainer_does(name):
    plans = [dataclasses.replace(PLAIN, steps=1 + number % 3, by_epochs=number > 2) for number in range(6)]
    jobs = jobs_of(plans, name)
    padded = make(lambda workload: VmapBackend(workload, batch_limit=4, padded=True), name)
    assert_alike(padded.train(jobs), make(LoopBackend, name).train(jobs))
    assert_same_in_parts(padded, jobs)


def test_padded_batches_always_have_the_same_shape(monkeypatch):
    padded = make(lambda workload: VmapBackend(workload, batch_limit=4, padded=True), "groupnorm")
    rows, gradients = [], padded._gradients

    def record(part, inputs, labels, dropout):
        rows.append(len(labels))
        return gradients(part, inputs, labels, dropout)

    monkeypatch.setattr(padded, "_gradients", record)
    padded.train(jobs_of([PLAIN, dataclasses.replace(PLAIN, steps=9)], "groupnorm"))
    padded.train(jobs_of([PLAIN] * 5, "groupnorm"))
    assert set(rows) == {4}


class TestFailures:
    def trainer(self, loss):
        data = DATA | {"loss": loss}
        return VmapBackend(workload_of(made(lambda: FlatModel(MODELS["mlp"]())), **data))

    @pytest.mark.parametrize(("number", "others"), [(1, ""), (3, ", or one of 2 trained with it")])
    def test_a_failure_names_client_visit_and_place(self, number, others):
        calls = []

        def loss(outputs, labels):
            calls.append(1)
            if len(calls) == 3:
                raise KeyError("mine")
            return cross_entropy(outputs, labels)

        with pytest.raises(OffbeatError) as caught:
            self.trainer(loss).train([jobs_of([PLAIN] * 4)[3]._replace(visit=visit) for visit in range(3, 3 + number)])
        place = f"{Path(__file__)}:{loss.__code__.co_firstlineno + 3}"
        assert str(caught.value) == (
            f"client 3, visit 3{others}: the model or the loss failed: KeyError: 'mine' ({place})"
        )

    def test_a_failure_names_a_client_that_still_trains(self):
        calls = []

        def loss(outputs, labels):
            calls.append(1)
            if len(calls) == 2:
                raise KeyError("mine")
            return cross_entropy(outputs, labels)

        plans = [dataclasses.replace(PLAIN, steps=steps) for steps in (1, 1, 2)]
        with pytest.raises(OffbeatError, match=r"^client 2, visit 2: the model or the loss failed"):
            self.trainer(loss).train(jobs_of(plans))
